// Bundles the hook's tests with each supported version of React.

import { build } from 'esbuild';

const ROOT = new URL('../', import.meta.url).pathname;
const VERSIONS = {
  18: { react: 'react18', 'react-dom': 'react-dom18' },
  19: {},
};

for (const [version, alias] of Object.entries(VERSIONS)) {
  await build({
    absWorkingDir: ROOT,
    entryPoints: ['tests/react/hook.test.tsx'],
    outfile: `build/tests/react${version}.test.js`,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    jsx: 'automatic',
    alias,
    external: ['happy-dom'],
    define: { 'process.env.NODE_ENV': '"development"' },
    // React's CommonJS modules use `require` to load Node's modules.
    banner: { js: `import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);` },
  });
}
