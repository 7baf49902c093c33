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

# The third act needs the TPU's compiler: pip install -e '.[tpu]'
acts=2
"$python" -c 'import jaxlib, libtpu' 2>/dev/null && acts=3

title "1 of $acts: read the code, before it runs"
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

title "2 of $acts: watch the run, without an accelerator"
say "The same program with only the removed names replaced: it trains again, and is still slow." \
    "It is started unchanged, on 8 XLA cores that are simulated on this machine's CPU." \
    "What it prints comes first, the report afterwards. This takes about a minute."
command xladoctor profile --simulate-cores 8 --html "$html" -- \
    python sample_runs/ct_slices/runnable.py --small
mkdir -p "$(dirname "$html")"
"$xladoctor" profile --simulate-cores 8 --html "$html" -- \
    "$python" sample_runs/ct_slices/runnable.py --small

if [ "$acts" -eq 3 ]; then
    title "3 of $acts: what it would cost on a TPU, without one"
    say "The TPU's own compiler compiles the graphs of this run for 8 cores of a TPU v3 and of a v5e." \
        "A minute or two; asked again, it answers at once."
    command xladoctor report --last --tpu v3-8,v5e-8 --tpu-graphs 6
    "$xladoctor" report --last --tpu v3-8,v5e-8 --tpu-graphs 6 \
        | sed -n '/^On a TPU/,/^Compilations/p' | sed '$d'
fi

title "Next"
say "The report as a page of its own:  $html" \
    "What a code means:                $xladoctor explain XLA101" \
    "The report once more, as JSON:    $xladoctor report --last --output-format json" \
    "The same program, treated:        $xladoctor profile --simulate-cores 8 -- $python sample_runs/ct_slices/treated.py --small" \
    "Your own:                         $xladoctor lint your_training.py"
