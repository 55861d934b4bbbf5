#!/bin/sh
# Debian packages that some tests use. Without the right to install them those tests skip and say so.
set -u
wanted="chromium espeak-ng flite festival"
missing=""
for name in $wanted; do
    command -v "$name" >/dev/null 2>&1 || missing="$missing $name"
done
# PostgreSQL's server is not on the path.
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "no apt-get here: tests that need$missing will skip"
    exit 0
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "not allowed to install Debian packages: tests that need$missing will skip"
        exit 0
    fi
    as_root="sudo -n"
fi
# shellcheck disable=SC2086
if ! { $as_root apt-get update -qq && $as_root apt-get install -y -qq $missing >/dev/null; }; then
    echo "could not install$missing: their tests will skip"
fi
exit 0
