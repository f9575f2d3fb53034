// The calls to the store that JavaScript waits for. Each resolves to undefined when no answer comes in time or the call
// fails, and to null when it could not be made.

// Asks the Durable Object that holds the connection. Resolves to its answer.
export function askObject(environment, name, location, tag, command, waitMs, probeKey, isBulky) {
  let answer;
  try {
    const hint = location && { locationHint: location };
    const object = environment.STORE_CONNECTION.getByName(name, hint);
    answer = object.ask(tag, command, waitMs, probeKey, isBulky);
  } catch {
    return Promise.resolve(null);
  }
  return within(answer, waitMs);
}

// A store's answer is no longer than this.
const ANSWER_BYTES_MAX = 1 << 20;

// Asks a store behind HTTP. Resolves to status and body.
export function askFront(url, token, body, waitMs) {
  const late = new AbortController();
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const exchange = async () => {
    const response = await fetch(url, { method: "POST", headers, body, redirect: "manual", signal: late.signal });
    return [response.status, await text(response)];
  };
  return within(exchange(), waitMs, late);
}

async function text(response) {
  const length = response.headers.get("content-length");
  if (length !== null && Number(length) <= ANSWER_BYTES_MAX) return response.text();
  const decoder = new TextDecoder();
  let [text, bytes] = ["", 0];
  for await (const piece of response.body ?? []) {
    bytes += piece.length;
    if (bytes > ANSWER_BYTES_MAX) throw new Error("the store's answer does not end");
    text += decoder.decode(piece, { stream: true });
  }
  return text + decoder.decode();
}

function within(answer, waitMs, late) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      resolve();
      late?.abort();
    }, waitMs);
    const end = (answer) => {
      clearTimeout(timer);
      resolve(answer);
    };
    answer.then(end, () => end());
  });
}
