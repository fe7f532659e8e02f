// Prints the minified and gzipped size of each entry, without React. Fails if a gzipped size exceeds its bound.

import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

/**
 * The bounds in gzipped bytes. A React page loads only `./react`, which includes whatever the hooks need from the main
 * entry.
 */
const BOUNDS = { '.': 6700, './react': 6300 };

let fits = true;
for (const [entry, file] of [
  ['.', 'index.js'],
  ['./react', 'react.js'],
]) {
  const { outputFiles } = await build({
    entryPoints: [new URL(`../dist/${file}`, import.meta.url).pathname],
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    external: ['react'],
    write: false,
  });
  const [{ contents }] = outputFiles;
  const gzipped = gzipSync(contents, { level: 9 }).length;
  console.log(`${entry.padEnd(8)} ${contents.length} bytes minified, ${gzipped} gzipped (at most ${BOUNDS[entry]})`);
  fits &&= gzipped <= BOUNDS[entry];
}
if (!fits) {
  console.error('Too large: remove code, or raise the bound in scripts/size.mjs and in the README, and explain why.');
  process.exit(1);
}
