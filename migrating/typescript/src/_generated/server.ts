// In a project, Convex writes this file.
export { mutationGeneric as mutation } from "convex/server";
