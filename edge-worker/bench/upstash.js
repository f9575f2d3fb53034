// The same limit as the bench's policy, by the package that most Workers use for it.
import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis/cloudflare";

let limiter;

export default {
  async fetch(request, environment) {
    limiter ??= new Ratelimit({
      redis: new Redis({ url: environment.STORE_URL, token: environment.STORE_TOKEN, enableTelemetry: false }),
      limiter: Ratelimit.tokenBucket(1_000_000, "1 s", 1_000_000),
      ephemeralCache: false,
      analytics: false,
    });
    const { success } = await limiter.limit("all");
    if (!success) return new Response("Too many requests", { status: 429 });
    const { pathname, search } = new URL(request.url);
    return fetch(environment.ORIGIN + pathname + search, request);
  },
};
