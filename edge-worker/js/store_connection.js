// Holds the connection to the store that the transport "durable_object" shares among isolates.
import { DurableObject } from "cloudflare:workers";
import { Connection } from "./lockkeeper_worker.js";
import { liveInstance } from "./module.js";

export class StoreConnection extends DurableObject {
  #connection;
  #instance;

  ask(tag, command, waitMs, probeKey, isBulky) {
    const instance = liveInstance();
    if (this.#instance !== instance) {
      this.#connection = new Connection(this.env);
      this.#instance = instance;
    }
    const call = (resolve) => this.#connection.ask(tag, command, waitMs, probeKey, isBulky, resolve);
    return new Promise(call);
  }
}
