#!/bin/sh
# Builds the listening tests' page from its locked source, in a folder of its own, runs its tests, and checks
# that the committed bundle is the same, byte for byte. Needs Node 20.19 or later, npm and its registry.
set -eu
listening="$(cd "$(dirname "$0")/.." && pwd)/src/sottovoce/listening"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/web"
(cd "$listening/web" && tar --exclude=./node_modules -cf - .) | tar -xf - -C "$work/web"
cd "$work/web"
npm ci --no-audit --no-fund
npm test
npm run build
if ! diff -r "$work/page" "$listening/page"; then
    echo "the committed page is not what its source builds: run npm ci && npm run build in $listening/web" >&2
    exit 1
fi
echo "the page is current"
