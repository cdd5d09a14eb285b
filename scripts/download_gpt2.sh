#!/usr/bin/env bash
# Downloads the real GPT-2 (124M, 548 MB) from Hugging Face: scripts/download_gpt2.sh [DIRECTORY] (default: build/gpt2).
# An interrupted download is taken up again by the next run; a file stands under its own name only when it is complete.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source_url=https://huggingface.co/openai-community/gpt2/resolve/main
target=${1:-$top/build/gpt2}

fail() {
  echo "download_gpt2.sh: $*" >&2
  exit 1
}

# fetch URL FILE: downloads, appending to what FILE already holds; fails on any HTTP error.
if command -v curl > /dev/null; then
  fetch() { curl --fail --location --show-error --retry 3 --continue-at - --output "$2" "$1"; }
elif command -v wget > /dev/null; then
  fetch() { wget --tries=3 --continue --output-document="$2" "$1"; }
else
  fail "neither curl nor wget is installed"
fi

mkdir -p "$target" || fail "cannot create the directory $target"
for name in config.json vocab.json merges.txt model.safetensors; do
  [ -s "$target/$name" ] && continue
  fetch "$source_url/$name" "$target/$name.part" ||
    fail "could not download $source_url/$name; run this again to resume, or delete $target/$name.part to start afresh"
  [ -s "$target/$name.part" ] || fail "$source_url/$name is empty"
  mv "$target/$name.part" "$target/$name"
done

echo "export DRIFTLESS_GPT2_DIR=$(printf %q "$(cd "$target" && pwd)")"
