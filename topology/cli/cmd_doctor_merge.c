/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hostlist.h"
#include "topology/cli/cmd_doctor_merge.h"

struct member {
    char *name;
    int found; /* findings that have come */
    int said;  /* how many it has sent; -1: not known yet */
    int told;  /* somebody else has said why it is silent */
};

struct group {
    enum finding_kind kind;
    char *about, *text;
    int n, nto;
    const char **nodes; /* names of members */
    char **to;
};

struct doctor_merge {
    int n, ngroups, last; /* last: the member of the last line */
    struct member *members;
    struct group *groups;
};

struct doctor_merge *doctor_merge_create(void)
{
    return calloc(1, sizeof(struct doctor_merge));
}

void doctor_merge_destroy(struct doctor_merge *merge)
{
    if (!merge)
        return;
    for (int i = 0; i < merge->n; i++)
        free(merge->members[i].name);
    for (int i = 0; i < merge->ngroups; i++) {
        struct group *group = &merge->groups[i];

        for (int k = 0; k < group->nto; k++)
            free(group->to[k]);
        free(group->to);
        free(group->nodes);
        free(group->about);
        free(group->text);
    }
    free(merge->members);
    free(merge->groups);
    free(merge);
}

/* Room for one more, in steps of powers of two. */
static int make_room(void **array, int n, size_t size)
{
    void *more;

    if (n & (n - 1))
        return 0;
    more = realloc(*array, (n ? 2 * (size_t)n : 1) * size);
    if (!more)
        return -1;
    *array = more;
    return 0;
}

int doctor_merge_expect(struct doctor_merge *merge, const char *node)
{
    char *name = strdup(node);

    if (!name || make_room((void **)&merge->members, merge->n,
                           sizeof(*merge->members)) < 0) {
        free(name);
        return -1;
    }
    merge->members[merge->n++] = (struct member){name, 0, -1, 0};
    return 0;
}

/* The lines of a node come together, mostly. */
static struct member *find_member(struct doctor_merge *merge, const char *node)
{
    for (int i = 0; i < merge->n; i++) {
        int at = (merge->last + i) % merge->n;

        if (strcmp(merge->members[at].name, node) == 0) {
            merge->last = at;
            return &merge->members[at];
        }
    }
    return NULL;
}

static struct group *find_group(struct doctor_merge *merge,
                                enum finding_kind kind, const char *about,
                                const char *text)
{
    struct group *group;

    for (int i = 0; i < merge->ngroups; i++) {
        group = &merge->groups[i];
        if (group->kind == kind && strcmp(group->about, about) == 0 &&
            strcmp(group->text, text) == 0)
            return group;
    }
    if (make_room((void **)&merge->groups, merge->ngroups,
                  sizeof(*merge->groups)) < 0)
        return NULL;
    group = &merge->groups[merge->ngroups];
    *group = (struct group){
        .kind = kind, .about = strdup(about), .text = strdup(text)};
    if (group->about && group->text) {
        merge->ngroups++;
        return group;
    }
    free(group->about);
    free(group->text);
    return NULL;
}

static int add(struct doctor_merge *merge, struct member *member,
               const struct finding *finding, const char *to)
{
    struct group *group =
        find_group(merge, finding->kind, finding->about, finding->text);

    if (!group ||
        make_room((void **)&group->nodes, group->n, sizeof(*group->nodes)) < 0)
        return -1;
    group->nodes[group->n++] = member->name;
    if (!to)
        return 0;
    if (make_room((void **)&group->to, group->nto, sizeof(*group->to)) < 0 ||
        !(group->to[group->nto] = strdup(to)))
        return -1;
    group->nto++;
    return 0;
}

int doctor_merge_add(struct doctor_merge *merge, const char *node,
                     enum finding_kind kind, const char *about,
                     const char *text)
{
    struct member *member = find_member(merge, node);
    struct finding finding = {.kind = kind, .about = about};

    if (!member)
        return 0;
    snprintf(finding.text, sizeof(finding.text), "%s", text);
    member->told = 1;
    return add(merge, member, &finding, NULL);
}

static int find_kind(const char *name)
{
    int kind = 0;

    while (kind <= FINDING_BAD && strcmp(finding_names[kind], name) != 0)
        kind++;
    return kind <= FINDING_BAD ? kind : -1;
}

static int add_object(struct doctor_merge *merge, json_t *object)
{
    const char *node = NULL, *kind = NULL, *text = NULL, *to = NULL;
    struct finding finding = {.about = NULL};
    struct member *member;
    int count = -1;

    if (json_unpack(object, "{s:s,s?s,s?s,s?s,s?s,s?i}", "node", &node, "kind",
                    &kind, "about", &finding.about, "text", &text, "to", &to,
                    "findings", &count) < 0)
        return 0;
    member = find_member(merge, node);
    if (!member)
        return 0;
    if (count >= 0) {
        member->said = count;
        return 1;
    }
    if (!kind || find_kind(kind) < 0 || !finding.about || !text)
        return 0;
    finding.kind = (enum finding_kind)find_kind(kind);
    snprintf(finding.text, sizeof(finding.text), "%s", text);
    member->found++;
    return add(merge, member, &finding, to) < 0 ? -1 : 1;
}

int doctor_merge_line(struct doctor_merge *merge, const char *line)
{
    json_t *object = line[0] == '{' ? json_loads(line, 0, NULL) : NULL;
    int rc = object ? add_object(merge, object) : 0;

    json_decref(object);
    return rc;
}

static int check_reports(struct doctor_merge *merge, const char *why)
{
    struct finding finding = {.kind = FINDING_BAD, .about = "report"};
    int rc = 0;

    for (int i = 0; i < merge->n && rc == 0; i++) {
        struct member *member = &merge->members[i];

        if (member->told || member->said == member->found)
            continue;
        if (member->found)
            snprintf(finding.text, sizeof(finding.text),
                     "the report is incomplete; run it there again: srun -w "
                     "NODE plait doctor");
        else
            snprintf(finding.text, sizeof(finding.text),
                     "no report came%s%.300s; log in there, and run plait "
                     "doctor",
                     why && *why ? ": " : "", why ? why : "");
        rc = add(merge, member, &finding, NULL);
    }
    return rc;
}

/* "plait 0.9.0, plugin 1f00ba12": the release is what stands before the
 * comma. */
static bool same_release(const char *a, const char *b)
{
    size_t n = strcspn(a, ",");

    return n == strcspn(b, ",") && strncmp(a, b, n) == 0;
}

static int check_versions(struct doctor_merge *merge, const char *version)
{
    const struct group *first = NULL;
    int builds = 0, mixed = 0, rc = 0;
    struct finding finding = {.about = "mixed"};

    for (int i = 0; i < merge->ngroups; i++) {
        const struct group *group = &merge->groups[i];

        if (strcmp(group->about, "version") != 0)
            continue;
        first = first ? first : group;
        builds += group != first || (version && strcmp(group->text, version));
        mixed |= !same_release(group->text, first->text) ||
                 (version && !same_release(group->text, version));
    }
    if (!builds)
        return 0;
    finding.kind = mixed ? FINDING_BAD : FINDING_NOTE;
    snprintf(finding.text, sizeof(finding.text),
             mixed
                 ? "the nodes do not all have the same release of Plait (see "
                   "version; this host: %.100s); install one release everywhere"
                 : "the nodes do not all have the same build of Plait (see "
                   "version; this host: %.100s)",
             version ? version : "not known");
    for (int i = 0; i < merge->n && rc == 0; i++)
        if (merge->members[i].found)
            rc = add(merge, &merge->members[i], &finding, NULL);
    return rc;
}

static int compare(const void *one, const void *other)
{
    const struct group *a = one, *b = other;

    return a->kind != b->kind ? (int)b->kind - (int)a->kind : b->n - a->n;
}

int doctor_merge_finish(struct doctor_merge *merge, const char *version,
                        const char *why)
{
    if (check_reports(merge, why) < 0 || check_versions(merge, version) < 0)
        return -1;
    qsort(merge->groups, (size_t)merge->ngroups, sizeof(*merge->groups),
          compare);
    return 0;
}

int doctor_merge_count(const struct doctor_merge *merge, enum finding_kind kind)
{
    int n = 0;

    for (int i = 0; i < merge->ngroups; i++)
        n += merge->groups[i].kind == kind;
    return n;
}

static char *fold_to(const struct group *group)
{
    return plait_hostlist_fold((const char *const *)group->to, group->nto);
}

void doctor_merge_print(const struct doctor_merge *merge)
{
    int bad = doctor_merge_count(merge, FINDING_BAD);

    printf("%d node%s; what stands without names holds for all.\n\n", merge->n,
           merge->n == 1 ? "" : "s");
    for (int i = 0; i < merge->ngroups; i++) {
        const struct group *group = &merge->groups[i];
        char *nodes = plait_hostlist_fold(group->nodes, group->n);
        char *to = fold_to(group);

        finding_print(group->kind, group->about, group->text);
        if (group->n < merge->n || group->nto)
            printf("%15s%d of %d: %s%s%s\n", "", group->n, merge->n,
                   nodes ? nodes : "?", group->nto ? " to " : "",
                   group->nto && to ? to : "");
        free(nodes);
        free(to);
    }
    if (bad)
        printf("\n%d thing%s to be put right (!!).\n", bad,
               bad == 1 ? " is" : "s are");
    else
        printf("\nNothing is wrong.\n");
}

json_t *doctor_merge_json(const struct doctor_merge *merge)
{
    json_t *checks = json_array();

    for (int i = 0; i < merge->ngroups; i++) {
        const struct group *group = &merge->groups[i];
        char *nodes = plait_hostlist_fold(group->nodes, group->n);
        char *to = fold_to(group);
        json_t *check =
            json_pack("{s:s,s:s,s:s,s:i,s:s?}", "about", group->about, "kind",
                      finding_names[group->kind], "text", group->text, "count",
                      group->n, "nodes", nodes);

        if (check && group->nto && to)
            json_object_set_new(check, "to", json_string(to));
        json_array_append_new(checks, check);
        free(nodes);
        free(to);
    }
    return json_pack("{s:b,s:i,s:i,s:o}", "good",
                     doctor_merge_count(merge, FINDING_BAD) == 0, "unchecked",
                     doctor_merge_count(merge, FINDING_UNCHECKED), "nodes",
                     merge->n, "checks", checks);
}
