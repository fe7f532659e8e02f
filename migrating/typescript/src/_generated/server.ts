// In a project, Convex generates this file.
export { mutationGeneric as mutation } from "convex/server";
