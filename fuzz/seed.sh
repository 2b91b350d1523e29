#!/bin/sh
# Writes the seed corpora: golden archives, their programs, and the canonical texts.
set -eu
cd "$(dirname "$0")"
mkdir -p corpus/archive corpus/program corpus/text corpus/simplify
golden=../crates/litz-import/tests/golden
for file in "$golden"/*/*.pt2; do
    name=$(basename "$(dirname "$file")")-$(basename "$file" .pt2)
    cp "$file" "corpus/archive/$name"
    {
        unzip -p "$file" '*/models/model.json'
        printf '\0'
        unzip -p "$file" '*/data/weights/model_weights_config.json'
    } > "corpus/program/$name"
done
cp ../crates/litz-ir/tests/text/*.litz corpus/text/
# Facts have no seeds: the first bytes of an input are its ranges, and libFuzzer finds trees by itself.
head -c 256 "$golden/schemas.txt" > corpus/simplify/text
