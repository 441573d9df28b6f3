/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* localtime_r */
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "topology/cli/commands.h"
#include "topology/cli/usage.h"

/* plait usage: the table has a line for each user, account, layout and number
 * of nodes; JSON has all steps. */

enum { NAME = 80 };

struct group {
    char user[NAME], account[NAME], sizes[NAME];
    int tasks, nodes;
    int steps;
    int timed;    /* of which sacct knows how long they took */
    double hours; /* of nodes */
    int64_t last; /* when the newest began */
};

struct groups {
    struct group *list;
    size_t n;
};

static void name_user(const struct usage_step *step, char *name)
{
    const struct passwd *entry = step->user ? NULL : getpwuid(step->uid);

    if (step->user || entry)
        snprintf(name, NAME, "%s", step->user ? step->user : entry->pw_name);
    else
        snprintf(name, NAME, "%u", step->uid);
}

static int compare(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    int order = strcmp(x->user, y->user);

    if (order == 0)
        order = strcmp(x->account, y->account);
    if (order == 0)
        order = strcmp(x->sizes, y->sizes);
    if (order == 0)
        order = x->tasks - y->tasks;
    return order ? order : x->nodes - y->nodes;
}

static void fill(struct group *group, const struct usage_step *step)
{
    memset(group, 0, sizeof(*group));
    name_user(step, group->user);
    snprintf(group->account, NAME, "%s", step->account ? step->account : "-");
    plait_layout_format_sizes(step->size, group->sizes, NAME);
    group->tasks = step->tasks;
    group->nodes = step->nodes;
    group->steps = 1;
    group->last = step->time;
    if (step->elapsed == USAGE_UNKNOWN)
        return;
    group->timed = 1;
    group->hours = (double)step->elapsed * step->nodes / 3600;
}

static int make_groups(const struct usage *usage, struct groups *groups)
{
    size_t kept = 0;

    groups->n = 0;
    groups->list = calloc(usage->n + 1, sizeof(*groups->list));
    if (!groups->list)
        return -1;
    for (size_t i = 0; i < usage->n; i++)
        if (!usage->steps[i].preflight)
            fill(&groups->list[groups->n++], &usage->steps[i]);
    qsort(groups->list, groups->n, sizeof(*groups->list), compare);
    for (size_t i = 0; i < groups->n; i++) {
        const struct group *one = &groups->list[i];
        struct group *sum = &groups->list[kept ? kept - 1 : 0];

        if (kept == 0 || compare(sum, one) != 0) {
            groups->list[kept++] = *one;
            continue;
        }
        sum->steps++;
        sum->timed += one->timed;
        sum->hours += one->hours;
        if (one->last > sum->last)
            sum->last = one->last;
    }
    groups->n = kept;
    return 0;
}

/* "2026-11-29T08:01:43+0100"; its first ten characters are the date. */
static void format_time(int64_t seconds, char *text, size_t n)
{
    time_t time = (time_t)seconds;
    struct tm tm;

    if (seconds == USAGE_UNDATED || !localtime_r(&time, &tm) ||
        strftime(text, n, "%Y-%m-%dT%H:%M:%S%z", &tm) == 0)
        snprintf(text, n, "-");
}

static int width(const struct groups *groups, size_t offset, const char *head)
{
    size_t most = strlen(head);

    for (size_t i = 0; i < groups->n; i++) {
        size_t n = strlen((const char *)&groups->list[i] + offset);

        most = n > most ? n : most;
    }
    return (int)most;
}

static void print_table(const struct groups *groups, int accounts)
{
    int user = width(groups, offsetof(struct group, user), "USER"),
        account = width(groups, offsetof(struct group, account), "ACCOUNT"),
        sizes = width(groups, offsetof(struct group, sizes), "LAYOUT");

    printf("%-*s  ", user, "USER");
    if (accounts)
        printf("%-*s  ", account, "ACCOUNT");
    printf("%-*s  %6s  %5s  %6s  ", sizes, "LAYOUT", "TASKS", "NODES", "STEPS");
    printf("%s%s\n", accounts ? "NODE-HOURS  " : "", "LAST");
    for (size_t i = 0; i < groups->n; i++) {
        const struct group *group = &groups->list[i];
        char last[32];

        format_time(group->last, last, sizeof(last));
        printf("%-*s  ", user, group->user);
        if (accounts)
            printf("%-*s  ", account, group->account);
        printf("%-*s  %6d  %5d  %6d  ", sizes, group->sizes, group->tasks,
               group->nodes, group->steps);
        if (accounts && group->timed)
            printf("%10.2f  ", group->hours);
        else if (accounts)
            printf("%10s  ", "-");
        printf("%.10s\n", last);
    }
}

void usage_print(const struct usage *usage, int accounts)
{
    struct groups groups;
    int steps = 0, timed = 0, preflights = 0;

    if (make_groups(usage, &groups) < 0) {
        plait_cmd_failed("out of memory");
        return;
    }
    for (size_t i = 0; i < usage->n; i++)
        preflights += usage->steps[i].preflight != 0;
    for (size_t i = 0; i < groups.n; i++) {
        steps += groups.list[i].steps;
        timed += groups.list[i].timed;
    }
    if (groups.n)
        print_table(&groups, accounts);
    printf("%d planned step%s", steps, steps == 1 ? "" : "s");
    if (accounts && timed < steps)
        printf(", of which sacct does not know %d", steps - timed);
    if (preflights)
        printf("; %d preflight%s", preflights, preflights == 1 ? "" : "s");
    printf("\n");
    free(groups.list);
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *step_json(const struct usage_step *step)
{
    json_t *layout = json_object();
    char user[NAME], time[40];

    for (int a = 0; a < PLAIT_NAXES; a++)
        json_object_set_new(layout, plait_axis_names[a],
                            json_integer(step->size[a]));
    name_user(step, user);
    format_time(step->time, time, sizeof(time));
    return json_pack(
        "{s:I,s:I,s:I,s:s,s:o,s:o,s:i,s:i,s:o,s:o,s:b}", "job",
        (json_int_t)step->job, "step", (json_int_t)step->step, "uid",
        (json_int_t)step->uid, "user", user, "account",
        text_or_null(step->account), "layout", layout, "tasks", step->tasks,
        "nodes", step->nodes, "time",
        text_or_null(step->time == USAGE_UNDATED ? NULL : time), "elapsed_s",
        step->elapsed == USAGE_UNKNOWN ? json_null()
                                       : json_integer(step->elapsed),
        "preflight", step->preflight);
}

int usage_print_json(const struct usage *usage, int accounts)
{
    json_t *steps = json_array();

    for (size_t i = 0; i < usage->n; i++)
        json_array_append_new(steps, step_json(&usage->steps[i]));
    return plait_cmd_json(json_pack("{s:o,s:b,s:I}", "steps", steps,
                                    "accounting", accounts, "undated",
                                    (json_int_t)usage->undated));
}
