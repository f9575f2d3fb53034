/** Limits, idempotency and locks of a Lockkeeper policy, for Workers that answer requests themselves. */

/** A policy file: see docs/POLICY.md. */
export type Policy = string | { version: number; [member: string]: unknown };

/** How the store is reached: by a socket, by HTTP, or by the sockets that Durable Objects hold. */
export interface Store {
  /** `redis://host:port`, `rediss://` for TLS, or `https://` for a store behind HTTP. */
  url: string | URL;
  /** The user, where there is one beside the password. */
  user?: string;
  password?: string;
  /** The bearer token of a store behind HTTP. */
  token?: string;
  /** Selected where it is not 0. */
  database?: number;
  /** No decision waits longer for the store, connecting included: 1 to 10,000. */
  deadlineMs?: number;
  /**
   * The namespace of the class `StoreConnection`, which the Worker must export. Its objects read `STORE_URL`,
   * `STORE_USER`, `STORE_PASSWORD` and `STORE_DATABASE` from the Worker's variables.
   */
  connections?: object;
  /** How many of them share the decisions: 1 to 1,000. */
  objects?: number;
  /** Where they live: a location hint, such as `weur`. */
  location?: string;
}

export interface Options {
  store: Store;
  /** The isolate's own limiter, for when the store fails. */
  local?: {
    /** Sets of eight clients: 1 to 65,536. */
    sets?: number;
    /** Its part of each limit: above 0, up to 1. */
    share?: number;
  };
  /** Bodies that a fingerprint needs. */
  bodies?: {
    /** By then they must have come: 1 to 60,000. */
    deadlineMs?: number;
    /** The most bytes of them held at a time: 0 to 67,108,864. */
    heldBytes?: number;
  };
  /** A response header that tells who decided when the store did not. */
  degradedHeader?: string;
  /** The part of denials and degraded decisions that is logged: 0 to 1. */
  logSample?: number;
}

/** The policy or the options cannot be used. */
export class LockkeeperError extends Error {
  readonly name: "LockkeeperError";
  readonly code: "policy" | "options";
  /** A line for each fault: where, and what was expected there. */
  readonly faults: readonly string[];
}

/** What came out: see docs/POLICY.md. */
export type Outcome =
  | "allowed"
  | "blocked"
  | "denied"
  | "exempt"
  | "hold_limited"
  | "in_flight"
  | "key_rejected"
  | "locked"
  | "mismatch"
  | "not_retained"
  | "outcome_unknown"
  | "rejected"
  | "replay_limited"
  | "replayed"
  | "shadow_blocked"
  | "unavailable";

/** Who decided: the store; the isolate's own limiter or the policy's failure mode, when it failed; the policy itself. */
export type DecidedBy = "store" | "local" | "failure_mode" | "policy";

/** A request passes or is answered, as `response` tells. */
export type Decision = Passed | Answered;

/** The request passes. */
export interface Passed extends Decided {
  readonly response: undefined;
  /**
   * The request, with what the policy wants an origin to be told. Read the body from this one. Its signal aborts when what
   * it holds is lost and the policy cancels such requests.
   */
  readonly request: Request;
}

/** The request does not pass. */
export interface Answered extends Decided {
  /** The answer to it. */
  readonly response: Response;
  readonly request: undefined;
}

export interface Decided {
  readonly outcome: Outcome;
  readonly decidedBy: DecidedBy;
  /** The policy that applies. */
  readonly policy: string | undefined;
  /** Its limit that decided. */
  readonly limit: string | undefined;
  /**
   * Gives the response to a request that passes, with the policy's fields. A request that passes must be settled: what it
   * holds is kept for it until then. A promise that rejects says that nobody knows what became of the request, and so does
   * what cannot be sent, such as a response whose body was read: where the request holds something, its client gets 502.
   */
  settle(response: Response | Promise<Response>): Promise<Response>;
}

export class Lockkeeper {
  private constructor();
  /** A limiter to be made once for each isolate. Nothing is connected yet. Rejects with a `LockkeeperError`. */
  static create(policy: Policy, options: Options): Promise<Lockkeeper>;
  /**
   * Decides a request whose body is unread. Never rejects: where nothing can be decided, the policy's failure mode does.
   */
  decide(request: Request): Promise<Decision>;
}

/** The class of the objects that hold connections to the store: the Worker exports it where `store.connections` is set. */
export class StoreConnection {
  constructor(context: object, environment: unknown);
  /** For the limiter alone. */
  ask(tag: string, command: Uint8Array, waitMs: number, probeKey?: string, isBulky?: boolean): Promise<Uint8Array>;
}
