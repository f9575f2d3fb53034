// What the platform calls: asks the module, and answers itself should the module fail.
import { DurableObject } from "cloudflare:workers";
import wasm from "./lockkeeper_worker_bg.wasm";
import { __wbg_reset_state, Connection, decide, initSync, watch } from "./lockkeeper_worker.js";

// No decision takes longer than STORE_DEADLINE, at most 10 s: after this the module has failed.
const LOST_AFTER_MS = 11_000;

let isBroken = false;
let instance = 0;
const undecided = new Set();

initSync({ module: wasm });
watch(panicked);

export default {
  async fetch(request, environment, context) {
    const fallback = { passes: false };
    let passage;
    try {
      passage = await bounded(live().decide(request, environment, context, fallback));
    } catch (error) {
      report("decision", error);
      return fallback.passes ? origin(request, environment) : problem(503, "Rate limits cannot be checked at the moment");
    }
    const answer = passage.answer;
    if (answer) {
      passage.free();
      return answer;
    }
    try {
      return await passage.forward();
    } catch (error) {
      report("origin", error);
      return problem(502, "The origin cannot be reached");
    }
  },
};

// Holds the connection to the store that TRANSPORT = "durable_object" shares among isolates.
export class StoreConnection extends DurableObject {
  #connection;
  #instance;

  ask(tag, command, waitMs) {
    live();
    if (this.#instance !== instance) {
      this.#connection = new Connection(this.env);
      this.#instance = instance;
    }
    return this.#connection.ask(tag, command, waitMs);
  }
}

// A module that has panicked is replaced by a fresh instance.
function live() {
  if (isBroken) {
    __wbg_reset_state();
    watch(panicked);
    instance += 1;
    isBroken = false;
  }
  return { decide };
}

function panicked(message) {
  isBroken = true;
  report("panic", message);
  for (const abandon of undecided) abandon(new Error("the module panicked"));
}

// A promise of a module that has failed never settles.
function bounded(decision) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      isBroken = true;
      end(reject)(new Error("no decision"));
    }, LOST_AFTER_MS);
    const end = (settle) => (value) => {
      clearTimeout(timer);
      undecided.delete(reject);
      settle(value);
    };
    undecided.add(reject);
    decision.then(end(resolve), end(reject));
  });
}

function report(what, error) {
  if (error instanceof WebAssembly.RuntimeError) isBroken = true;
  console.error(JSON.stringify({ lockkeeper: "failure", what, error: String(error) }));
}

function origin(request, environment) {
  if (environment.ORIGIN_SERVICE) return environment.ORIGIN_SERVICE.fetch(request);
  if (!environment.ORIGIN) return fetch(request);
  const { pathname, search } = new URL(request.url);
  return fetch(environment.ORIGIN + pathname + search, request);
}

function problem(status, title) {
  const kind = status === 503 ? "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity" : "about:blank";
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store", "retry-after": "1" };
  return new Response(JSON.stringify({ type: kind, title, status }), { status, headers });
}
