/**
 * A page where users sign in and out. Two buttons share a limit, one with React and one without. A third button has a
 * different limit.
 */

import { StrictMode, useEffect, useRef, useState, type ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { createRateLimit } from 'tollgate-client';
import { useCountdown, useRateLimit } from 'tollgate-client/react';

const users = new URLSearchParams(location.search).getAll('user');
const initOf = (user: string): RequestInit => ({ headers: { 'x-user': user } });

/** Called with every response that the app receives, whichever limit applies to it. */
let observe: (response: Response) => void = () => {};
const { fetch } = window;
window.fetch = async (...request) => {
  const response = await fetch(...request);
  observe(response);
  return response;
};

function App(): ReactNode {
  const [user, setUser] = useState(users[0] ?? '');
  const [found, setFound] = useState('nothing yet');

  async function search(): Promise<void> {
    const { status, headers } = await window.fetch('/send/fixed', { method: 'POST' });
    setFound(`${status}, RateLimit: ${headers.get('ratelimit')}`);
  }

  return (
    <form onSubmit={(event) => event.preventDefault()}>
      <h1>{user ? `Chat as ${user.split('.')[0]}` : 'Signed out'}</h1>
      {user ? (
        <>
          <Hooked user={user} />
          <Plain user={user} />
        </>
      ) : null}
      <button type="button" id="search" onClick={search}>
        Search
      </button>
      <p className="note" id="found">
        {found}
      </p>
      {['', ...users].map((each) => (
        <button key={each} type="button" id={`as-${each.split('.')[0]}`} onClick={() => setUser(each)}>
          {each ? `Sign in as ${each.split('.')[0]}` : 'Sign out'}
        </button>
      ))}
    </form>
  );
}

function Hooked({ user }: { user: string }): ReactNode {
  const { status, spend } = useRateLimit('/limits/chat', { init: initOf(user) });
  const seconds = useCountdown(status.retryAt);
  return (
    <button
      type="button"
      id="hooked"
      disabled={!status.ok}
      data-known={status.known}
      data-retry-at={status.retryAt}
      onClick={() => send(user, spend)}
    >
      {status.ok ? 'Send' : `Send again in ${seconds} s`}
    </button>
  );
}

/** A button whose state is managed without React. */
function Plain({ user }: { user: string }): ReactNode {
  const element = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const limit = createRateLimit({ url: '/limits/chat', init: initOf(user) });
    observe = limit.observe;
    const button = element.current;
    let tick: ReturnType<typeof setTimeout>;
    function draw(): void {
      const { ok, retryAt } = limit.getStatus();
      const left = retryAt === null ? 0 : Math.max(retryAt - Date.now(), 0);
      if (button) {
        button.disabled = !ok;
        button.textContent = left > 0 ? `Send again in ${Math.ceil(left / 1000)} s` : 'Send';
        button.onclick = () => send(user, limit.spend);
      }
      clearTimeout(tick);
      if (left > 0) {
        tick = setTimeout(draw, left % 1000 || 1000);
      }
    }
    const stop = limit.subscribe(draw);
    draw();
    return () => {
      stop();
      clearTimeout(tick);
    };
  }, [user]);
  return <button type="button" id="plain" ref={element} />;
}

async function send(user: string, spend: () => void): Promise<void> {
  const { ok } = await window.fetch('/chat', { ...initOf(user), method: 'POST' });
  if (ok) {
    spend();
  }
  document.body.dataset['sent'] = String(Number(document.body.dataset['sent'] ?? 0) + 1);
}

const root = document.getElementById('root');
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
