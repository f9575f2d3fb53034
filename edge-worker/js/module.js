// Keeps the module usable: an instance that has panicked is replaced, and nobody waits for it.
import wasm from "./lockkeeper_worker_bg.wasm";
import { __wbg_reset_state, initSync, Passage, watch } from "./lockkeeper_worker.js";

// The store is given STORE_DEADLINE, at most 10 s: after this the module has failed, unless it asked for more patience.
const LOST_AFTER_MS = 11_000;

let isBroken = false;
let instance = 0;
const unsettled = new Set();

initSync({ module: wasm });
watch(panicked);

// The number of a live instance. What an earlier one made is of no more use.
export function liveInstance() {
  if (isBroken) {
    __wbg_reset_state();
    watch(panicked);
    instance += 1;
    isBroken = false;
  }
  return instance;
}

function panicked(message) {
  isBroken = true;
  report("panic", message);
  for (const abandon of unsettled) abandon(new Error("the module panicked"));
}

// Lets a request in and goes on until it is decided.
export async function decided(begin, fallback) {
  const began = liveInstance();
  let passage = begin();
  if (!(passage instanceof Passage)) passage = await bounded(passage, fallback);
  for (let asked = passage.asked; asked; asked = passage.asked) {
    const answer = await asked;
    if (isBroken || instance !== began) throw new Error("the module panicked");
    passage.resume(answer);
  }
  return passage;
}

// Sends a request on, unless it is on its way, and gives the response with our fields.
export async function forwarded(passage) {
  const began = instance;
  if (passage.isHeld) return settled(passage.response());
  const response = await passage.send();
  return isBroken || instance !== began ? response : passage.dressed(response);
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

export function report(what, error) {
  if (error instanceof WebAssembly.RuntimeError) isBroken = true;
  console.error(JSON.stringify({ lockkeeper: "failure", what, error: String(error) }));
}

// What a decision may say of the request should the module fail meanwhile.
export function undecided() {
  return { passes: false, without: [], patienceMs: 0 };
}

// The request as it then passes, if it does.
export function passing(request, fallback) {
  if (!fallback.passes || request.bodyUsed || request.body?.locked) return undefined;
  const headers = new Headers(request.headers);
  for (const name of fallback.without) headers.delete(name);
  return new Request(request, { headers });
}

// What its client gets if it does not.
export function undecidable() {
  return problem(503, "The store cannot be asked at the moment");
}

export function problem(status, title) {
  const kind = status === 503 ? "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity" : "about:blank";
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store", "retry-after": "1" };
  return new Response(JSON.stringify({ type: kind, title, status }), { status, headers });
}
