import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { extname, normalize } from 'node:path';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';

const FILES = new URL('../../demo/dist/', import.meta.url);
const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' };

/**
 * Serves the built demo page, and forwards other requests to two servers, which thus share the page's origin. Requests
 * to `/send/` go to the server at `other`, which has different limits. All remaining requests go to `base`.
 */
export function site(base: string, other = base): Server {
  return createServer((request, response) => {
    const path = new URL(request.url ?? '/', base).pathname;
    const served =
      path === '/' || path.startsWith('/assets/') || path === '/style.css'
        ? file(path, response)
        : forward(path.startsWith('/send/') ? other : base, request, response);
    served.catch((error: unknown) => response.writeHead(502).end(String(error)));
  });
}

async function file(path: string, response: ServerResponse): Promise<void> {
  const name = path === '/' ? 'index.html' : normalize(path).slice(1);
  const content = await readFile(fileURLToPath(new URL(name, FILES)));
  response.writeHead(200, { 'content-type': TYPES[extname(name)] ?? 'application/octet-stream' }).end(content);
}

async function forward(base: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method = 'GET', url = '/', headers } = request;
  const user = headers['x-user'] ?? /\buser=([\w.-]+)/.exec(headers.cookie ?? '')?.[1];
  const forwarded = await fetch(new URL(url, base), { method, headers: { 'x-user': String(user) } });
  // Node's `fetch` has already decoded the body.
  const fields = [...forwarded.headers].filter(
    ([name]) => !/^(content-(encoding|length)|transfer-encoding|connection)$/.test(name),
  );
  response.writeHead(forwarded.status, Object.fromEntries(fields)).end(Buffer.from(await forwarded.arrayBuffer()));
}

/** Starts `server` on a free local port and returns its URL. */
export async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
