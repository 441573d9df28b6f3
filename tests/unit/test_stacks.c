/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "runtime/stuck/ask_nodes.h"
#include "runtime/stuck/stacks.h"
#include "tap.h"

/* Which ranks are elsewhere in the code than the rest, of eight ranks with tp
 * 2, pp 2 and dp 2. */
enum { N = 8 };

static struct plait_stack stack[N];
static char text[4000];

static void start(const char *where, bool waits)
{
    memset(stack, 0, sizeof(stack));
    for (int i = 0; i < N; i++) {
        struct plait_stack *k = &stack[i];

        k->rank = i;
        k->world = N;
        k->gpu = i % 4;
        k->pid = 100 + i;
        k->size[PLAIT_TP] = k->size[PLAIT_DP] = k->size[PLAIT_PP] = 2;
        k->size[PLAIT_CP] = k->size[PLAIT_EP] = 1;
        k->at[PLAIT_TP] = i & 1;
        k->at[PLAIT_DP] = i >> 1 & 1;
        k->at[PLAIT_PP] = i >> 2;
        strcpy(k->job, "7.0");
        strcpy(k->program, "python3");
        snprintf(k->host, sizeof(k->host), "n%d", i / 4);
        k->waits = waits;
        snprintf(k->where, sizeof(k->where), "%s", where);
    }
}

static void place(int i, const char *where, bool waits)
{
    snprintf(stack[i].where, sizeof(stack[i].where), "%s", where);
    stack[i].waits = waits;
}

static int says(const char *part)
{
    plait_stacks_explain(stack, N, text, sizeof(text));
    if (strstr(text, part))
        return 1;
    diag("\"%s\" is not in: %s", part, text);
    return 0;
}

static void test_guilty(void)
{
    start("recv (pipe.py:10)", true);
    place(5, "load (data.py:3)", false);
    place(4, "all_reduce, from step (train.py:9)", true);
    ok(says("job 7.0: 8 ranks of python3, by their stacks: rank 5 (n1, GPU 1, "
            "process 105) is elsewhere: load (data.py:3); 7 other ranks wait"),
       "the one that waits for nobody");
    ok(says("\n  rank 4 (in rank 5's tp group): all_reduce, from step") &&
           says("\n  ranks 0-3,6-7: recv (pipe.py:10)"),
       "where the others are, by the plan's groups");
    start("step (train.py:9)", false);
    place(2, "load (data.py:3)", false);
    ok(says("rank 2 (n0, GPU 2, process 102) is elsewhere: load (data.py:3)"),
       "one that is where no other is, where none is known to wait");
    start("step (train.py:9)", false);
    for (int i = 0; i < N / 2; i++)
        place(i, "save (train.py:20)", false);
    ok(says("none stands out"), "two halves accuse nobody");
    start("all_reduce, from step (train.py:9)", true);
    ok(says("none stands out\n  ranks 0-7: all_reduce"), "nor do all alike");
    place(1, "load (data.py:3)", false);
    stack[6].state = PLAIT_STUCK_STOPPED;
    ok(says("rank 6 (n1, GPU 2, process 106) is stopped by a signal"),
       "one that is stopped comes first");
    stack[3].moved = true;
    ok(says("by their stacks: it goes on") && !strchr(text, '\n'),
       "one that has moved");
}

static void test_python(void)
{
    static const char dump[] =
        "Process 12: python3 train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        "Thread 12 (idle): \"MainThread\"\n"
        "    all_reduce (/usr/lib/python3/dist-packages/torch/distributed/"
        "distributed_c10d.py:2501)\n"
        "    wrapper (/usr/lib/python3/dist-packages/torch/x.py:81)\n"
        "    step (/home/me/train.py:42)\n    <module> (/home/me/train.py:60)\n"
        "Thread 13 (idle): \"worker\"\n    load (/home/me/data.py:1)\n";
    static const char queue[] =
        "Thread 12 (idle): \"MainThread\"\n"
        "    wait (/usr/lib/python3.11/threading.py:320)\n"
        "    barrier_of_loaders (/home/me/data.py:7)\n    <module> (t.py:1)\n";
    char where[192];
    bool waits = false;

    ok(plait_stack_python(dump, where, sizeof(where), &waits) == 0 && waits &&
           !strcmp(where, "all_reduce, from step (train.py:42)"),
       "a collective of torch's: %s", where);
    ok(plait_stack_python(queue, where, sizeof(where), &waits) == 0 &&
           !strcmp(where, "wait, from barrier_of_loaders (data.py:7)"),
       "a function of the program's: %s", where);
    ok(plait_stack_python("Error: denied\n", where, sizeof(where), &waits) <
               0 &&
           plait_stack_python("Thread 1: \"MainThread\"", where, sizeof(where),
                              &waits) < 0 &&
           plait_stack_python("\"MainThread\"\n    x\n", where, sizeof(where),
                              &waits) < 0,
       "no stack");
}

static void test_lines(void)
{
    struct plait_stacks s = {0};
    static const char lines[] =
        "slurmstepd: something\n"
        "plait-stuck-stack 3 4 1 77 0 1 0 2 1 1 0 1 0 2 1 1 0 7.0 n1 py recv "
        "x\n"
        "plait-stuck-stack 1 4 -1 75 1 0 0 2 1 1 0 1 0 2 0 1 0 - n0 py "
        "a\x1b[2J\n"
        "plait-stuck-stack 3 4 1 78 0 1 0 2 1 1 0 1 0 2 1 1 0 7.0 n1 py b\n"
        "plait-stuck-stack 0 4 1 78 99 1 0 2 1 1 0 1 0 2 1 1 0 7.0 n1 py b\n"
        "plait-stuck-stack -1 4 1 78 0 1 0 2 1 1 0 1 0 2 1 1 0 7.0 n1 py b\n"
        "plait-stuck-stack 0 4 1 78 0 1 0 2 1\nplait-stuck-stack\n";

    ok(plait_stacks_read(lines, &s) == 0 && s.n == 2, "lines of two ranks");
    ok(s.n == 2 && s.at[0].rank == 1 && !s.at[0].job[0] &&
           s.at[0].state == PLAIT_STUCK_STOPPED &&
           !strcmp(s.at[0].where, "a?[2J"),
       "nothing that a terminal would obey");
    ok(s.n == 2 && s.at[1].pid == 77 && s.at[1].at[PLAIT_TP] == 1 &&
           !strcmp(s.at[1].where, "recv x"),
       "a rank is read once");
    plait_stacks_clear(&s);
}

/* Node names of which one is the beginning of another. */
static void test_silent(void)
{
    char *names[] = {(char *)"n1", (char *)"n10", (char *)"n2", (char *)"n3"};
    char silent[64];

    ok(plait_stuck_list_silent(names, 4,
                               "plait-stuck-node n10\nplait-stuck-node n3\n"
                               "srun: n2\nplait-stuck-node n2\n"
                               "plait-stuck-node n1\n",
                               silent, sizeof(silent)) == 0 &&
           !*silent,
       "all nodes have answered");
    ok(plait_stuck_list_silent(names, 4,
                               "plait-stuck-node n10\nplait-stuck-node n2\n"
                               "plait-stuck-node n3\n",
                               silent, sizeof(silent)) == 1 &&
           !strcmp(silent, "n1"),
       "one has not: %s", silent);
    ok(plait_stuck_list_silent(names, 4, "", silent, sizeof(silent)) == 4 &&
           !strcmp(silent, "n1 and 3 others"),
       "none has: %s", silent);
}

int main(void)
{
    test_silent();
    test_guilty();
    test_python();
    test_lines();
    return done_testing();
}
