// In a project, Convex generates this file.
import type { ComponentApi } from "@convex-dev/rate-limiter/_generated/component.js";
import { componentsGeneric } from "convex/server";

export const components = componentsGeneric() as unknown as { rateLimiter: ComponentApi<"rateLimiter"> };
