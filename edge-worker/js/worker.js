// What the platform calls: asks the module, and answers itself should the module fail.
import { decide } from "./lockkeeper_worker.js";
import { decided, forwarded, passing, problem, report, undecidable, undecided } from "./module.js";

export { StoreConnection } from "./store_connection.js";

export default {
  async fetch(request, environment, context) {
    const fallback = undecided();
    let passage;
    try {
      passage = await decided(() => decide(request, environment, context, fallback), fallback);
    } catch (error) {
      report("decision", error);
      const passes = passing(request, fallback);
      return passes ? origin(passes, environment) : undecidable();
    }
    const answer = passage.answer;
    if (answer) {
      passage.free();
      return answer;
    }
    try {
      return await forwarded(passage);
    } catch (error) {
      report("origin", error);
      return problem(502, "The origin cannot be reached");
    }
  },
};

function origin(request, environment) {
  if (environment.ORIGIN_SERVICE) return environment.ORIGIN_SERVICE.fetch(request);
  if (!environment.ORIGIN) return fetch(request);
  const { pathname, search } = new URL(request.url);
  return fetch(environment.ORIGIN + pathname + search, request);
}
