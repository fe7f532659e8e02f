// @upstash/ratelimit 2.

import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis";

export function searching(redis: Redis) {
  const limits = new Ratelimit({ redis, prefix: "search", limiter: Ratelimit.slidingWindow(10, "10 s") });
  return async (user: string): Promise<Response> => {
    const { success, limit, remaining, reset } = await limits.limit(user);
    if (success) {
      return new Response("found");
    }
    const headers = {
      "retry-after": String(Math.ceil((reset - Date.now()) / 1000)),
      "x-ratelimit-limit": String(limit),
      "x-ratelimit-remaining": String(remaining),
    };
    return new Response("too many requests", { status: 429, headers });
  };
}
