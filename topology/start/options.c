/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPARES_MOST = 1024 };

/* Slurm cuts the help at 75 characters. */
const struct plait_option_text plait_option_texts[PLAIT_NOPTIONS] = {
    {"tp", NULL, "N",
     "tensor parallel size: split each layer over N tasks of a node"},
    {"cp", NULL, "N",
     "context parallel size: split each sequence over N tasks"},
    {"ep", NULL, "N",
     "expert parallel size: spread experts over N of the cp*dp tasks"},
    {"dp", NULL, "N",
     "data parallel size, or auto (the default): the tasks that are left"},
    {"pp", NULL, "N", "pipeline parallel size: cut the model into N stages"},
    {"rank-order", NULL, "ORDER",
     "axes, fastest first (tp-cp-ep-dp-pp), or auto"},
    {"placement", NULL, "HOW",
     "topology (neighbours under one switch) or linear"},
    {"pin", NULL, "HOW",
     "closest (cores and NIC next to each task's GPU) or none"},
    {"rendezvous", NULL, "HOW", "torch (set RANK, MASTER_ADDR, ...) or none"},
    {"show-plan", NULL, NULL,
     "print the plan as a table before the tasks start"},
    {"model", NULL, "FILE",
     "model (plait.yaml) by which --tp=auto, --pp=auto, ... are chosen"},
    {"preflight", "node-preflight", NULL,
     "time cores, memory and links before the tasks start"},
    {"spares", "node-spares", "N",
     "leave out N nodes, those below a bound of a preflight first"},
    {"preflight-report", "node-preflight-report", "FILE",
     "write what a preflight finds to FILE, as JSON"},
};

const char *plait_option_flag(enum plait_option option)
{
    const struct plait_option_text *text = &plait_option_texts[option];

    return text->flag ? text->flag : text->name;
}

void plait_options_init(struct plait_options *options)
{
    memset(options, 0, sizeof(*options));
    plait_layout_init(&options->layout);
    options->placement = PLAIT_PLACE_TOPOLOGY;
    options->pin = 1;
    options->rendezvous = 1;
}

/* *chosen is 1 for the first word, 0 for the second. */
static int parse_choice(const char *what, const char *value, const char *first,
                        const char *second, int *chosen,
                        struct plait_error *err)
{
    if (strcmp(value, first) != 0 && strcmp(value, second) != 0) {
        errno = EINVAL;
        return plait_errorf(err, "--%s=%.40s: must be %s or %s", what, value,
                            first, second);
    }
    *chosen = strcmp(value, first) == 0;
    return 0;
}

static int set_size(struct plait_options *options, enum plait_option option,
                    const char *value, struct plait_error *err)
{
    char flag[8];

    snprintf(flag, sizeof(flag), "--%s", plait_option_texts[option].name);
    return plait_layout_parse_size(flag, value, &options->layout.size[option],
                                   err);
}

static int set_path(char path[1024], enum plait_option option,
                    const char *value, struct plait_error *err)
{
    if (!*value || strlen(value) >= 1024) {
        errno = EINVAL;
        return plait_errorf(err, "--%s=%.40s: must be the path of a file",
                            plait_option_texts[option].name, value);
    }
    snprintf(path, 1024, "%s", value);
    return 0;
}

static int set_spares(struct plait_options *options, const char *value,
                      struct plait_error *err)
{
    char *end;
    long n = strtol(value, &end, 10);

    if (*value < '0' || *value > '9' || *end || n > SPARES_MOST) {
        errno = EINVAL;
        return plait_errorf(err,
                            "spares=%.40s: must be a whole number from 0 to "
                            "%d, of nodes",
                            value, SPARES_MOST);
    }
    options->spares = (int)n;
    /* A later spares=0 takes back the preflight that another implied. */
    if (n > 0 || !(options->given &
                   (1u << PLAIT_OPTION_PREFLIGHT | 1u << PLAIT_OPTION_REPORT)))
        options->preflight = n > 0;
    return 0;
}

static int set_option(struct plait_options *options, enum plait_option option,
                      const char *value, struct plait_error *err)
{
    const char *name = plait_option_texts[option].name;
    int chosen = 0;

    switch (option) {
    case PLAIT_OPTION_ORDER:
        return plait_layout_parse_rank_order(value, &options->layout,
                                             &options->order_free, err);
    case PLAIT_OPTION_PLACEMENT:
        if (parse_choice(name, value, "topology", "linear", &chosen, err) < 0)
            return -1;
        options->placement = chosen ? PLAIT_PLACE_TOPOLOGY : PLAIT_PLACE_LINEAR;
        return 0;
    case PLAIT_OPTION_PIN:
        return parse_choice(name, value, "closest", "none", &options->pin, err);
    case PLAIT_OPTION_RENDEZVOUS:
        return parse_choice(name, value, "torch", "none", &options->rendezvous,
                            err);
    case PLAIT_OPTION_SHOW_PLAN:
        options->show_plan = 1;
        return 0;
    case PLAIT_OPTION_PREFLIGHT:
        options->preflight = 1;
        return 0;
    case PLAIT_OPTION_SPARES:
        return set_spares(options, value, err);
    case PLAIT_OPTION_MODEL:
        return set_path(options->model, option, value, err);
    case PLAIT_OPTION_REPORT:
        if (set_path(options->report, option, value, err) < 0)
            return -1;
        options->preflight = 1;
        return 0;
    default:
        return set_size(options, option, value, err);
    }
}

int plait_options_set(struct plait_options *options, enum plait_option option,
                      const char *value, struct plait_error *err)
{
    if (option < 0 || option >= PLAIT_NOPTIONS) {
        errno = EINVAL;
        return plait_errorf(err, "unknown option %d", (int)option);
    }
    if (!value && plait_option_texts[option].argument) {
        errno = EINVAL;
        return plait_errorf(err, "--%s needs a value",
                            plait_option_texts[option].name);
    }
    if (set_option(options, option, value, err) < 0)
        return -1;
    options->given |= 1u << option;
    return 0;
}

bool plait_options_same(const struct plait_options *a,
                        const struct plait_options *b)
{
    return memcmp(&a->layout, &b->layout, sizeof(a->layout)) == 0 &&
           a->order_free == b->order_free && a->placement == b->placement &&
           a->pin == b->pin && a->rendezvous == b->rendezvous &&
           a->spares == b->spares && strcmp(a->model, b->model) == 0 &&
           strcmp(a->report, b->report) == 0;
}

/* Whether the text has the flag as a word. */
static bool has_word(const char *text, const char *flag)
{
    const char *at = text;
    size_t n = strlen(flag);

    while ((at = strstr(at, flag)) && at[n] >= '0' && at[n] <= '9')
        at += n;
    return at;
}

void plait_options_name_owners(const struct plait_options *options,
                               unsigned named, unsigned job,
                               struct plait_error *err)
{
    size_t used = strlen(err->text), begin = used;
    char flag[32], before[sizeof(err->text)];

    memcpy(before, err->text, used + 1);
    for (int i = 0; i < PLAIT_NAXES; i++) {
        snprintf(flag, sizeof(flag), "--%s=%d", plait_option_texts[i].name,
                 options->layout.size[i]);
        if (!(options->given & ~named & 1u << i) || !has_word(before, flag))
            continue;
        used += (size_t)snprintf(
            err->text + used, sizeof(err->text) - used,
            job & 1u << i ? "%s%s is the job's: --%s=%s takes it back"
                          : "%s%s is the site's",
            used == begin ? " (" : "; ", flag, plait_option_texts[i].name,
            i == PLAIT_DP ? "auto" : "1");
        if (used + 2 > sizeof(err->text)) {
            err->text[begin] = '\0';
            return;
        }
    }
    if (used > begin)
        snprintf(err->text + used, sizeof(err->text) - used, ")");
}

void plait_options_layout(const struct plait_options *options,
                          struct plait_layout *layout)
{
    *layout = options->layout;
    plait_layout_leave_out(layout, options->given);
}
