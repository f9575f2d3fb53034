// Keeps the module usable: an instance that has panicked is replaced, and nobody waits for it.
import wasm from "./lockkeeper_worker_bg.wasm";
import { __wbg_reset_state, initSync, watch } from "./lockkeeper_worker.js";

// No decision takes longer than STORE_DEADLINE, at most 10 s: after this the module has failed.
const LOST_AFTER_MS = 11_000;

let isBroken = false;
let instance = 0;
// How to tell those who wait for the module that it has panicked.
const waiting = new Set();

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
  for (const abandon of waiting) abandon(new Error("the module panicked"));
}

// A promise of a module that has panicked never settles; this one does.
export function unlessPanicked(promise) {
  return new Promise((resolve, reject) => {
    waiting.add(reject);
    promise.then(resolve, reject).finally(() => waiting.delete(reject));
  });
}

// The same for a decision, which does not take long.
export async function bounded(decision) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      isBroken = true;
      reject(new Error("no decision"));
    }, LOST_AFTER_MS);
  });
  try {
    return await Promise.race([unlessPanicked(decision), late]);
  } finally {
    clearTimeout(timer);
  }
}

export function report(what, error) {
  if (error instanceof WebAssembly.RuntimeError) isBroken = true;
  console.error(JSON.stringify({ lockkeeper: "failure", what, error: String(error) }));
}

// What a client gets when nothing could be decided and the policy says deny.
export function undecidable() {
  return problem(503, "Rate limits cannot be checked at the moment");
}

export function problem(status, title) {
  const kind = status === 503 ? "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity" : "about:blank";
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store", "retry-after": "1" };
  return new Response(JSON.stringify({ type: kind, title, status }), { status, headers });
}
