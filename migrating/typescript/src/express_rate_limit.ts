// express-rate-limit 8.

import express from "express";
import { rateLimit } from "express-rate-limit";

export function server() {
  const app = express();
  app.set("trust proxy", 1); // one proxy in front
  app.use(
    rateLimit({
      windowMs: 15 * 60 * 1000,
      limit: 100,
      identifier: "api",
      standardHeaders: "draft-8",
      legacyHeaders: false,
      skip: (request) => request.path === "/health",
    }),
  );
  app.get("/", (_request, response) => void response.send("hello"));
  app.get("/health", (_request, response) => void response.send("well"));
  return app;
}
