// A Worker that answers requests itself and limits them first.
import { Lockkeeper, LockkeeperError } from "lockkeeper";
import policy from "./policy.json";

export { StoreConnection } from "lockkeeper";

interface Environment {
  // "durable_object": over the sockets of StoreConnection; else over one for each request, or HTTP, as STORE_URL says.
  TRANSPORT?: string;
  STORE_CONNECTION?: object;
  STORE_URL: string;
  STORE_USER?: string;
  STORE_PASSWORD?: string;
  STORE_TOKEN?: string;
  STORE_DEADLINE_MS?: string;
}

let created: Promise<Lockkeeper> | undefined;

export default {
  async fetch(request: Request, environment: Environment): Promise<Response> {
    created ??= create(environment);
    let limiter: Lockkeeper;
    try {
      limiter = await created;
    } catch (error) {
      console.error(error instanceof LockkeeperError ? error.faults : error);
      return new Response("Not configured\n", { status: 503 });
    }
    const decision = await limiter.decide(request);
    return decision.response ?? decision.settle(answer(decision.request));
  },
};

function create(environment: Environment): Promise<Lockkeeper> {
  return Lockkeeper.create(policy, {
    store: {
      url: environment.STORE_URL,
      user: environment.STORE_USER,
      password: environment.STORE_PASSWORD,
      token: environment.STORE_TOKEN,
      deadlineMs: Number(environment.STORE_DEADLINE_MS ?? 250),
      connections: environment.TRANSPORT === "durable_object" ? environment.STORE_CONNECTION : undefined,
    },
    degradedHeader: "x-ratelimit-degraded",
  });
}

async function answer(request: Request): Promise<Response> {
  const { pathname } = new URL(request.url);
  return new Response(`You asked for ${pathname}\n`);
}
