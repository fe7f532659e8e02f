/** A page with one limited button. The query `?user=ada` sets the user. */

import { StrictMode, useState, type FormEvent, type ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { useCountdown, useRateLimit } from 'tollgate-client/react';

const user = new URLSearchParams(location.search).get('user') ?? 'ada';
const init = { headers: { 'x-user': user } };

function Chat(): ReactNode {
  const { status, spend, observe } = useRateLimit('/limits/chat', { init });
  const seconds = useCountdown(status.retryAt);
  const [messages, setMessages] = useState<string[]>([]);
  const [text, setText] = useState('');
  const [refused, setRefused] = useState(0);
  const [sending, setSending] = useState(false);

  async function send(event: FormEvent): Promise<void> {
    event.preventDefault();
    setSending(true);
    const response = await fetch('/chat', { ...init, method: 'POST', body: text });
    setSending(false);
    if (response.ok) {
      spend(1);
      setMessages((before) => [...before, text || 'Hello']);
      setText('');
    } else {
      setRefused((before) => before + 1);
    }
    observe(response);
  }

  return (
    <form onSubmit={send} data-known={status.known} data-retry-at={status.retryAt} data-refused={refused}>
      <h1>Chat</h1>
      <ol aria-live="polite">
        {messages.map((message, i) => (
          <li key={i}>{message}</li>
        ))}
      </ol>
      <label>
        Message
        <input value={text} onChange={(event) => setText(event.target.value)} placeholder="Hello" maxLength={200} />
      </label>
      <button disabled={!status.ok || sending}>{status.ok ? 'Send' : `Send again in ${seconds} s`}</button>
      <p className="note">
        {status.error
          ? 'Your limit is currently unknown.'
          : status.ok
            ? ' '
            : 'You have sent many messages. Please wait a moment.'}
      </p>
    </form>
  );
}

const root = document.getElementById('root');
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Chat />
    </StrictMode>,
  );
}
