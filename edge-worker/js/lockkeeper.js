// The limiter for Workers in JavaScript and TypeScript. What it takes and gives: lockkeeper.d.ts.
import { waitUntil } from "cloudflare:workers";
import { Limiter } from "./lockkeeper_worker.js";
import { decided, forwarded, liveInstance, passing, report, undecidable, undecided } from "./module.js";

export { StoreConnection } from "./store_connection.js";

// The options, by the name of the variable that says the same to the Worker.
const OPTIONS = {
  BODY_DEADLINE: ["bodies", "deadlineMs"],
  DEGRADED_HEADER: ["degradedHeader"],
  HELD_BODIES_BYTES: ["bodies", "heldBytes"],
  LOCAL_SETS: ["local", "sets"],
  LOCAL_SHARE: ["local", "share"],
  LOG_SAMPLE: ["logSample"],
  STORE_CONNECTION: ["store", "connections"],
  STORE_DATABASE: ["store", "database"],
  STORE_DEADLINE: ["store", "deadlineMs"],
  STORE_LOCATION: ["store", "location"],
  STORE_OBJECTS: ["store", "objects"],
  STORE_PASSWORD: ["store", "password"],
  STORE_TOKEN: ["store", "token"],
  STORE_URL: ["store", "url"],
  STORE_USER: ["store", "user"],
};

const LONGEST_MS = { BODY_DEADLINE: 60_000, STORE_DEADLINE: 10_000 };

export class LockkeeperError extends Error {
  name = "LockkeeperError";

  constructor(code, faults) {
    super(`${code}: ${faults.join("; ")}`);
    this.code = code;
    this.faults = faults;
  }
}

export class Lockkeeper {
  #variables;
  #limiter;
  #instance;

  static async create(policy, options) {
    const limiter = new Lockkeeper();
    limiter.#variables = variables(policy, options);
    try {
      limiter.#live();
    } catch (error) {
      throw refusal(error);
    }
    return limiter;
  }

  async decide(request) {
    const fallback = undecided();
    const origin = new Origin(request);
    const told = {};
    try {
      const environment = { ...this.#variables, ORIGIN_SERVICE: origin };
      const begin = () => this.#live().decide(request, environment, { waitUntil }, fallback, told);
      const passage = await decided(begin, fallback);
      told.response = passage.answer;
      if (told.response) {
        passage.free();
        return new Decision(told);
      }
      const response = forwarded(passage);
      // Where nobody settles it, nobody hears of its failure either.
      response.catch(() => {});
      const sent = await Promise.race([origin.request, response]);
      // What cannot be sent is answered.
      if (sent instanceof Response) return new Decision({ ...told, response: sent });
      return new Decision({ ...told, request: sent }, origin, response);
    } catch (error) {
      report("decision", error);
      const passes = passing(request, fallback);
      const outcome = passes ? "allowed" : "unavailable";
      const response = passes ? undefined : undecidable();
      return new Decision({ response, request: passes, outcome, decidedBy: "failure_mode" });
    }
  }

  #live() {
    const instance = liveInstance();
    if (this.#instance !== instance) {
      this.#limiter = new Limiter(this.#variables);
      this.#instance = instance;
    }
    return this.#limiter;
  }
}

// Stands for the origin: tells which request it was sent, and waits to be told the response.
class Origin {
  #arrived;

  constructor(arrived) {
    this.#arrived = arrived;
    this.request = new Promise((resolve) => (this.sent = resolve));
    this.response = new Promise((resolve) => (this.answer = resolve));
  }

  // A request that goes on as it came stands for its own members.
  fetch(url, members) {
    const { cf } = this.#arrived;
    this.sent(members === this.#arrived ? members : new Request(url, { cf, ...members }));
    return this.response;
  }
}

class Decision {
  #origin;
  #forwarded;

  constructor(told, origin, forwarded) {
    Object.assign(this, told);
    this.#origin = origin;
    this.#forwarded = forwarded;
  }

  async settle(response) {
    const usable = sendable(response, this.request);
    this.#origin?.answer(usable);
    try {
      return (await this.#forwarded) ?? usable;
    } catch (error) {
      report("response", error);
      return usable;
    }
  }
}

// The response, if a client can be sent it: the module reads its body.
async function sendable(promise, request) {
  const response = await promise;
  if (!(response instanceof Response)) throw new TypeError("settle: expected a Response");
  if (response.bodyUsed || response.body?.locked) throw new TypeError("settle: the body of the response was read before");
  if (response.status === 0) throw new TypeError("settle: an error is no response to be sent");
  const isUpgrade = request?.headers.get("upgrade")?.toLowerCase() === "websocket";
  if (response.webSocket && !isUpgrade) throw new TypeError("settle: the request asks for no WebSocket");
  return response;
}

function variables(policy, given) {
  const options = given ?? {};
  const groups = ["bodies", "local", "store"].flatMap((group) => unknown(options[group], [group]));
  const faults = unknown(options, []).concat(groups);
  const variables = {};
  for (const [name, path] of Object.entries(OPTIONS)) {
    const value = path.reduce((value, step) => value?.[step], options) ?? undefined;
    const expected = value === undefined ? undefined : missed(name, value);
    if (expected) faults.push(`${path.join(".")}: expected ${expected}`);
    variables[name] = value instanceof URL ? value.href : value;
  }
  if (faults.length > 0) throw new LockkeeperError("options", faults);
  for (const name of Object.keys(LONGEST_MS)) {
    if (variables[name] !== undefined) variables[name] = `${Math.round(variables[name])}ms`;
  }
  return { ...variables, POLICY: written(policy), TRANSPORT: transport(variables) };
}

// What was expected of an option, if it is of another kind. The module looks at the rest.
function missed(name, value) {
  const most = LONGEST_MS[name];
  if (most) {
    const isInRange = typeof value === "number" && value >= 1 && value <= most;
    return isInRange ? undefined : `a number from 1 to ${most.toLocaleString("en")}`;
  }
  if (name === "STORE_CONNECTION" || (name === "STORE_URL" && value instanceof URL)) return undefined;
  return ["number", "string"].includes(typeof value) ? undefined : "text or a number";
}

function written(policy) {
  try {
    return typeof policy === "string" ? policy : JSON.stringify(policy);
  } catch {
    throw new LockkeeperError("policy", ["$: expected what JSON can say"]);
  }
}

function transport({ STORE_CONNECTION, STORE_URL }) {
  if (STORE_CONNECTION) return "durable_object";
  return /^https?:/.test(STORE_URL) ? "rest" : "tcp";
}

function unknown(options, start) {
  const known = Object.values(OPTIONS).filter((path) => start.every((step, place) => path[place] === step));
  const names = new Set(known.map((path) => path[start.length]));
  const found = Object.keys(options ?? {}).filter((name) => !names.has(name));
  return found.map((name) => `${[...start, name].join(".")}: expected one of ${[...names].sort().join(", ")}`);
}

function refusal(error) {
  if (!Array.isArray(error?.faults)) return error;
  if (error.what === "policy") return new LockkeeperError("policy", error.faults);
  const spoken = (fault) => fault.replace(/[A-Z]+_[A-Z_]+/g, (name) => OPTIONS[name]?.join(".") ?? name);
  return new LockkeeperError("options", error.faults.map(spoken));
}
