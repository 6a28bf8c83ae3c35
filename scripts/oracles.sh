#!/usr/bin/env bash
# Installs the real packages that the differential tests ask into one folder, once:
#   $SNAPSHOTTER_ORACLES (default ~/.cache/snapshotter-oracles) / ai     npm ai@7.0.173, the AI SDK's client
# The pin matters: `npm install ai` on Node 20 quietly takes an older major version.
set -euo pipefail
home=${SNAPSHOTTER_ORACLES:-$HOME/.cache/snapshotter-oracles}
if [[ ! -e $home/ai/.done ]]; then
  mkdir -p "$home/ai"
  cd "$home/ai"
  [[ -e package.json ]] || npm init -y >/dev/null
  npm install --silent --no-fund --no-audit ai@7.0.173
  touch .done
fi
echo "$home"
