#!/usr/bin/env bash
# What xladoctor does, on a program that people could have written: called by `make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."

xladoctor=${XLADOCTOR:-xladoctor}
python=${TRAIN_PYTHON:-python}
html=.xladoctor/demo.html
bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; fi

title() { printf '\n%s== %s ==%s\n' "$bold" "$1" "$plain"; }
say() { printf '%s\n' "$@"; }
command() { printf '\n%s$ %s%s\n\n' "$bold" "$*" "$plain"; }

title "1 of 2: read the code, before it runs"
say "A notebook of 2021: a ResNet on CT slices, 8 TPU cores, torch_xla 1.7. What would go wrong with" \
    "it today, and what has always been slow? Nothing is run and torch is not even imported."
command xladoctor lint --output-format concise sample_runs/ct_slices/as_found.py
status=0
"$xladoctor" lint --output-format concise sample_runs/ct_slices/as_found.py || status=$?
# 1 says that there are findings; anything else is a fault of ours.
[ "$status" -eq 1 ] || exit 2

say "" "One of them in full, as it is shown by default: where, why xladoctor thinks so, what to do."
command xladoctor lint --select XLA405 sample_runs/ct_slices/as_found.py
"$xladoctor" lint --select XLA405 sample_runs/ct_slices/as_found.py || [ $? -eq 1 ] || exit 2

title "2 of 2: watch the run, without an accelerator"
say "The same program with only the removed names replaced: it trains again, and is still slow." \
    "It is started unchanged, on 8 XLA cores that are simulated on this machine's CPU." \
    "What it prints comes first, the report afterwards. This takes about a minute."
command xladoctor profile --simulate-cores 8 --html "$html" -- \
    python sample_runs/ct_slices/runnable.py --small
mkdir -p "$(dirname "$html")"
"$xladoctor" profile --simulate-cores 8 --html "$html" -- \
    "$python" sample_runs/ct_slices/runnable.py --small

title "Next"
say "The report as a page of its own:  $html" \
    "What a code means:                $xladoctor explain XLA101" \
    "The report once more, as JSON:    $xladoctor report --last --output-format json" \
    "The same program, treated:        $xladoctor profile --simulate-cores 8 -- $python sample_runs/ct_slices/treated.py --small" \
    "Your own:                         $xladoctor lint your_training.py"
