// What the platform calls: asks the module, and answers itself should the module fail.
import { DurableObject } from "cloudflare:workers";
import wasm from "./lockkeeper_worker_bg.wasm";
import { __wbg_reset_state, Connection, decide, initSync, watch } from "./lockkeeper_worker.js";

// The store is given STORE_DEADLINE, at most 10 s: after this the module has failed, unless it asked for more patience.
const LOST_AFTER_MS = 11_000;

let isBroken = false;
let instance = 0;
const unsettled = new Set();

initSync({ module: wasm });
watch(panicked);

export default {
  async fetch(request, environment, context) {
    const fallback = { passes: false, without: [], patienceMs: 0 };
    let passage;
    try {
      passage = await bounded(live().decide(request, environment, context, fallback), fallback);
    } catch (error) {
      report("decision", error);
      const passes = fallback.passes && !request.bodyUsed;
      return passes ? origin(request, environment, fallback.without) : problem(503, "The store cannot be asked at the moment");
    }
    const answer = passage.answer;
    if (answer) {
      passage.free();
      return answer;
    }
    try {
      return await settled(passage.forward());
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
  for (const abandon of unsettled) abandon(new Error("the module panicked"));
}

// A promise of a module that has failed never settles by itself.
function settled(promise) {
  return new Promise((resolve, reject) => {
    unsettled.add(reject);
    promise.then(resolve, reject).finally(() => unsettled.delete(reject));
  });
}

function bounded(decision, fallback) {
  return new Promise((resolve, reject) => {
    let timer;
    const wait = (milliseconds) => {
      timer = setTimeout(late, milliseconds);
    };
    const late = () => {
      const more = fallback.patienceMs;
      fallback.patienceMs = 0;
      if (more > 0) return wait(more);
      isBroken = true;
      reject(new Error("no decision"));
    };
    wait(LOST_AFTER_MS);
    settled(decision).then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function report(what, error) {
  if (error instanceof WebAssembly.RuntimeError) isBroken = true;
  console.error(JSON.stringify({ lockkeeper: "failure", what, error: String(error) }));
}

function origin(request, environment, without) {
  const headers = new Headers(request.headers);
  for (const name of without) headers.delete(name);
  request = new Request(request, { headers });
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
