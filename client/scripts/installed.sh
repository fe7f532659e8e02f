#!/usr/bin/env bash
# Installs the package into an empty project with the README's commands. Checks that the README's code compiles against
# the installed types, and that both entries work.
set -euo pipefail
client=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Create a clean checkout next to an empty project.
mkdir "$folder/tollgate" "$folder/project"
tar -C "$client/.." -c --exclude=node_modules --exclude=dist --exclude=build --exclude=target --exclude='*.tgz' client |
  tar -C "$folder/tollgate" -x
export npm_config_audit=false npm_config_fund=false npm_config_loglevel=error npm_config_prefer_offline=true

cd "$folder/project"
node - "$client/README.md" <<'SCRIPT'
const { readFileSync, writeFileSync } = require('node:fs');
const blocks = [...readFileSync(process.argv[2], 'utf8').matchAll(/^```(\w+)\n(.*?)^```$/gms)];
const [install] = blocks.filter(([, language]) => language === 'sh');
writeFileSync('install.sh', install[2]);
const code = blocks.filter(([, language, text]) => /^tsx?$/.test(language) && text.startsWith('import'));
if (code.length !== 3) {
  throw new Error(`expected 3 code blocks with imports in the README, found ${code.length}`);
}
code.forEach(([, language, text], i) => writeFileSync(`readme${i}.${language}`, `${text}export {};\n`));
SCRIPT
bash -euo pipefail install.sh
rm -r "$folder/tollgate/client/src" # The installed package does not need the sources.

# Provide React and its types, which any React project has.
tools=$folder/tollgate/client/node_modules
ln -s "$tools/react" "$tools/@types" node_modules/
"$tools/.bin/tsc" --noEmit --strict --target es2022 --module nodenext --jsx react-jsx --types react readme*.ts*

cat > use.mjs <<'SCRIPT'
import assert from 'node:assert/strict';
import { createRateLimit, parseRateLimit } from 'tollgate-client';
import { useRateLimit } from 'tollgate-client/react';

const limit = createRateLimit({ url: '/limits/chat' });
limit.observe(new Response(null, { status: 429, headers: { 'retry-after': '5' } }));
assert.equal(limit.getStatus().ok, false);
assert.equal(parseRateLimit(new Headers({ ratelimit: '"chat";r=1;t=2' })).length, 1);
assert.equal(typeof useRateLimit, 'function');
SCRIPT
node use.mjs
echo "installed with the README's commands: $(ls "$folder/tollgate/client/"*.tgz | xargs -n1 basename)"
