/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/stuck/runs.h"
#include "runtime/stuck/stacks.h"

/* No control characters; ends of lines only where `lines`. */
static void expect_text(const char *text, int lines)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' && !(lines && *text == '\n'))
            __builtin_trap();
}

static void explain_stacks(const char *text)
{
    struct plait_stacks stacks = {0};
    static char said[16384];

    if (plait_stacks_read(text, &stacks) == 0 && stacks.n > 0) {
        plait_stacks_explain(stacks.at, stacks.n, said, sizeof(said));
        expect_text(said, 1);
    }
    plait_stacks_clear(&stacks);
}

static void judge_runs(const char *text)
{
    struct plait_stuck_runs runs = {0};
    struct plait_verdict verdict;
    char said[1000];

    plait_stuck_runs_read(text, &runs);
    for (int i = 0; i < runs.n; i++) {
        const struct plait_stuck_run *run = &runs.run[i];

        expect_text(run->job, 0);
        if (plait_stuck_judge(run->rank, run->n, &verdict) < 0)
            continue;
        plait_stuck_sentence(run->rank, run->n, &verdict, 0, said,
                             sizeof(said));
        expect_text(said, 0);
    }
    plait_stuck_runs_clear(&runs);
}

/* What plait-stuck reads as text: the lines of other nodes, and Python's
 * stacks. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), where[128];
    bool waits;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    judge_runs(text);
    explain_stacks(text);
    if (plait_stack_python(text, where, sizeof(where), &waits) == 0)
        expect_text(where, 0);
    free(text);
    return 0;
}
