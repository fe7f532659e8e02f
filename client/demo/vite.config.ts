import type { UserConfig } from 'vite';

const server = process.env['TOLLGATE_URL'] ?? 'http://127.0.0.1:3000';

/** `vite demo` serves the page and forwards requests for `/limits` and `/chat` to the server at `TOLLGATE_URL`. */
const config: UserConfig = { server: { proxy: { '/limits': server, '/chat': server } } };

export default config;
