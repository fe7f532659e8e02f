// @convex-dev/rate-limiter 0.4.

import { HOUR, MINUTE, RateLimiter } from "@convex-dev/rate-limiter";
import { v } from "convex/values";
import { components } from "./_generated/api.js";
import { mutation } from "./_generated/server.js";

const limits = new RateLimiter(components.rateLimiter, {
  sendMessage: { kind: "token bucket", rate: 10, period: MINUTE, capacity: 3 },
  signUp: { kind: "fixed window", rate: 100, period: HOUR },
});

export const send = mutation({
  args: { user: v.id("users"), text: v.string() },
  handler: async (ctx, { user, text }) => {
    const { ok, retryAfter } = await limits.limit(ctx, "sendMessage", { key: user });
    if (ok) {
      await ctx.db.insert("messages", { user, text });
    }
    return { ok, retryAfter };
  },
});

export const signUp = mutation({
  args: { name: v.string() },
  handler: async (ctx, { name }) => {
    await limits.limit(ctx, "signUp", { throws: true });
    await ctx.db.insert("users", { name });
  },
});
