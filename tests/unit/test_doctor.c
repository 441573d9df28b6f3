/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/base/hostlist.h"
#include "topology/cli/cmd_doctor_merge.h"

/* What plait doctor --nodes makes of many reports, and the host lists in it. */

/* cmd_doctor.c has these, with the command. */
const char *const finding_names[] = {"good", "note", "unchecked", "bad"};
void finding_print(enum finding_kind kind, const char *about, const char *text)
{
    printf("# %s %s: %s\n", finding_names[kind], about, text);
}

static int folds(const char *list, const char *want)
{
    struct plait_error err;
    int n = 0, same;
    char **names = plait_hostlist_create(list, &n, &err);
    char *text = plait_hostlist_fold((const char *const *)names, n);

    same = text && strcmp(text, want) == 0;
    if (!same)
        diag("%s: %s, not %s", list, text ? text : "NULL", want);
    plait_hostlist_destroy(names, n);
    free(text);
    return same;
}

static void test_fold(void)
{
    static const char *const pairs[][2] = {
        {"n1", "n1"},
        {"n2,n1,n3", "n[1-3]"},
        {"n[1-1000]", "n[1-1000]"},
        {"n[9-11]", "n[9-11]"},
        {"n[08-11]", "n[08-11]"},
        {"n[098-101]", "n[098-101]"},
        {"n1,n01,n02,n2", "n[1,01,2,02]"},
        {"b7,a[1,3,5-6],login", "a[1,3,5-6],b7,login"},
        {"login,gateway", "gateway,login"},
        {"r1-n[1-2],r2-n[1-2]", "r1-n[1-2],r2-n[1-2]"},
        {"10,11,13", "[10-11,13]"},
        {"n12345678901", "n12345678901"},
    };
    char *none;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        ok(folds(pairs[i][0], pairs[i][1]), "%s is folded", pairs[i][0]);
    none = plait_hostlist_fold(NULL, 0);
    ok(none && !*none, "no names are a list too");
    free(none);
}

struct thousand {
    struct doctor_merge *merge;
    int failed;
};

static void say(struct thousand *t, int node, const char *kind,
                const char *about, const char *text, const char *rest)
{
    char line[512];

    snprintf(line, sizeof(line),
             "{\"node\":\"n%04d\",\"kind\":\"%s\",\"about\":\"%s\",\"text\":"
             "\"%s\"%s}",
             node, kind, about, text, rest);
    t->failed |= doctor_merge_line(t->merge, line) != 1;
}

static void end(struct thousand *t, int node, int count)
{
    char line[128];

    snprintf(line, sizeof(line), "{\"node\":\"n%04d\",\"findings\":%d}", node,
             count);
    t->failed |= doctor_merge_line(t->merge, line) != 1;
}

/* One node in a hundred has another plugin, one in 250 has none, one does not
 * reach another, one is silent, one is interrupted, one is down. */
static void report(struct thousand *t, int node)
{
    int count = 2;

    if (node == 500 || node == 800)
        return;
    say(t, node, "good", "slurm", "Slurm 22.05.8, cluster c answers", "");
    if (node % 250 == 3)
        say(t, node, "bad", "plugin", "spank_plait.so does not exist", "");
    else
        say(t, node, "good", "version",
            node % 100 == 7 ? "plait 0.0.9, plugin 0000beef"
                            : "plait 0.9.0, plugin 1f00ba12",
            "");
    if (node == 42) {
        say(t, node, "bad", "network", "not reached", ",\"to\":\"n0043\"");
        count++;
    }
    end(t, node, node == 600 ? count + 1 : count);
}

static json_t *find(json_t *document, const char *about, const char *kind)
{
    json_t *check;
    size_t i;

    json_array_foreach(
        json_object_get(document, "checks"), i,
        check) if (strcmp(json_string_value(json_object_get(check, "about")),
                          about) == 0 &&
                   strcmp(json_string_value(json_object_get(check, "kind")),
                          kind) == 0) return check;
    return NULL;
}

static int has(json_t *document, const char *about, const char *kind,
               const char *nodes, int count)
{
    json_t *check = find(document, about, kind);
    const char *got = json_string_value(json_object_get(check, "nodes"));

    if (!got) {
        diag("no %s about %s", kind, about);
        return 0;
    }
    if (nodes && strcmp(got, nodes) != 0)
        diag("%s, not %s", got, nodes);
    return (!nodes || strcmp(got, nodes) == 0) &&
           json_integer_value(json_object_get(check, "count")) == count;
}

static void test_thousand(void)
{
    struct thousand t = {doctor_merge_create(), 0};
    json_t *document;
    char name[16];

    for (int i = 1; i <= 1000; i++) {
        snprintf(name, sizeof(name), "n%04d", i);
        doctor_merge_expect(t.merge, name);
    }
    doctor_merge_add(t.merge, "n0800", FINDING_UNCHECKED, "report",
                     "the node is down");
    /* as they come: not in order */
    for (int i = 0; i < 1000; i++)
        report(&t, 1 + i * 387 % 1000);
    ok(!t.failed, "1,000 reports are read");
    ok(doctor_merge_line(t.merge, "srun: job 7 queued") == 0 &&
           doctor_merge_line(t.merge, "{\"node\":\"x\",\"findings\":1}") == 0 &&
           doctor_merge_line(t.merge, "{\"node\":\"n0001\"") == 0,
       "what is no report, of none of them or no JSON is left out");
    doctor_merge_finish(t.merge, "plait 0.9.0, plugin 1f00ba12",
                        "srun: timed out");
    document = doctor_merge_json(t.merge);
    ok(json_array_size(json_object_get(document, "checks")) == 9,
       "they have 9 distinct findings");
    ok(has(document, "slurm", "good", "n[0001-0499,0501-0799,0801-1000]", 998),
       "what all say stands once");
    ok(has(document, "plugin", "bad", "n[0003,0253,0503,0753]", 4),
       "what four nodes lack");
    ok(has(document, "network", "bad", "n0042", 1) &&
           strcmp(json_string_value(
                      json_object_get(find(document, "network", "bad"), "to")),
                  "n0043") == 0,
       "which node does not reach which");
    ok(has(document, "report", "unchecked", "n0800", 1),
       "a node that is down is not checked");
    ok(has(document, "report", "bad", NULL, 1), "a silent node, one cut short");
    ok(has(document, "mixed", "bad", NULL, 998), "releases differ");
    ok(!json_is_true(json_object_get(document, "good")), "which is not good");
    doctor_merge_print(t.merge);
    json_decref(document);
    doctor_merge_destroy(t.merge);
}

/* All alike, but for this host's plugin. */
static void test_builds(const char *own, enum finding_kind want)
{
    struct thousand t = {doctor_merge_create(), 0};
    json_t *document;

    doctor_merge_expect(t.merge, "n0001");
    say(&t, 1, "good", "version", "plait 0.9.0, plugin 1f00ba12", "");
    end(&t, 1, 1);
    doctor_merge_finish(t.merge, own, NULL);
    document = doctor_merge_json(t.merge);
    ok(want == FINDING_GOOD
           ? !find(document, "mixed", "bad") && !find(document, "mixed", "note")
           : find(document, "mixed", finding_names[want]) != NULL,
       "this host has %s", own);
    json_decref(document);
    doctor_merge_destroy(t.merge);
}

int main(void)
{
    test_fold();
    test_thousand();
    test_builds("plait 0.9.0, plugin 1f00ba12", FINDING_GOOD);
    test_builds("plait 0.9.0, plugin 2", FINDING_NOTE);
    test_builds("plait 0.2.0, plugin 1f00ba12", FINDING_BAD);
    return done_testing();
}
