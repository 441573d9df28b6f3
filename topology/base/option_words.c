/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of an option that a program does not have. */
#include "topology/base/option_words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/base/nearest.h"

enum { NAMES_MOST = 64 };

/* Options of mpirun, srun, torchrun, accelerate, deepspeed and of trainers. */
static const struct habit {
    const char *words;   /* without dashes, "-" for "_" */
    const char *options; /* ours, the first that the program has is meant */
    const char *instead; /* what to do where it has none of them */
} habits[] = {
    {"config conf cfg config-file", "model",
     "leave --%s out: the file itself is the argument"},
    {"model checkpoint ckpt model-path model-name-or-path", "model from init",
     "leave --%s out: the folder itself is the argument"},
    {"c", "np", NULL},
    {"n np ntasks nproc nprocs nproc-per-node num-processes num-gpus",
     "np tasks-per-node gpus tokens",
     "plait run --np=N -- COMMAND starts N tasks on this machine"},
    {"N nnodes num-nodes num-machines", "nodes",
     "srun -N, or mpirun, starts plait run on several nodes"},
    {"H host hosts hostfile machinefile", "nodes",
     "mpirun takes it, before plait run"},
    {"node-rank machine-rank rdzv-backend rdzv-id rdzv-endpoint rdzv-conf "
     "standalone",
     "", "leave it out: the ranks find each other"},
    {"master-addr main-process-ip", "",
     "leave it out, or set MASTER_ADDR: the ranks find each other"},
    {"master-port main-process-port", "",
     "leave it out, or set MASTER_PORT: the ranks find each other"},
    {"max-restarts", "elastic", "plait run --elastic goes on when a task dies"},
    {"bind-to map-by rank-by cpu-bind gpu-bind", "pin",
     "plait run binds tasks, unless by --pin=none"},
    {"x env genv export", "",
     "leave it out: tasks have the environment of plait run"},
    {"tag-output prepend-rank", "label", "plait run has --label"},
    {"tp cp ep pp dp", "",
     "srun --%s=N, plait run --np=N --%s=N or --set parallel.%s=N says it"},
    {"max-tokens max-new-tokens new-tokens max-length num-tokens length",
     "tokens", NULL},
    {"p text", "prompt", NULL},
    {"t T temp", "temperature", NULL},
    {"k topk", "top-k", NULL},
    {"topp nucleus", "top-p", NULL},
    {"steps max-steps train-iters max-iters iters", "set=train.steps", NULL},
    {"global-batch global-batch-size batch-size", "set=train.global_batch",
     NULL},
    {"micro-batch micro-batch-size per-device-train-batch-size",
     "set=train.micro_batch", NULL},
    {"lr learning-rate", "set=optim.lr", NULL},
    {"seed", "set=train.seed", NULL},
    {"train data data-path train-data", "set=data.train", NULL},
    {"precision dtype bf16 fp16", "set=train.precision", NULL},
    {"out output output-dir save checkpoint-dir", "set=checkpoint.dir", NULL},
    {"save-interval save-steps", "set=checkpoint.every", NULL},
};

const char *plait_option_word(int argc, char **argv)
{
    const char *word = argv[optind - 1];
    size_t n = strlen(word);

    /* Of several letters behind one dash, optind goes on after the last. */
    if (optopt > 0 && optopt < 0x80 && optind < argc &&
        argv[optind][0] == '-' && argv[optind][1] != '-' &&
        strchr(argv[optind], optopt) &&
        !(n > 1 && word[0] == '-' && word[1] != '-' && word[n - 1] == optopt))
        return argv[optind];
    return word;
}

/* The first words of a list of them that a space parts; the rest of it, or NULL
 * at its end. */
static const char *take_word(const char *list, char word[40])
{
    size_t n = strcspn(list, " ");

    if (!n)
        return NULL;
    snprintf(word, 40, "%.*s", (int)n, list);
    return list + n + strspn(list + n, " ");
}

static bool has_word(const char *list, const char *word)
{
    char one[40];

    while ((list = take_word(list, one)))
        if (strcmp(one, word) == 0)
            return true;
    return false;
}

static const char *find_name(const struct option *table, const char *name)
{
    for (; table && table->name; table++)
        if (strcmp(table->name, name) == 0)
            return name;
    return NULL;
}

/* What to do instead, with the option's name for each %s. */
static void put_name(const char *instead, const char *name,
                     char text[PLAIT_OPTION_ADVICE])
{
    const char *at;
    size_t n = (size_t)snprintf(text, PLAIT_OPTION_ADVICE, "; ");

    while ((at = strstr(instead, "%s")) && n < PLAIT_OPTION_ADVICE) {
        n += (size_t)snprintf(text + n, PLAIT_OPTION_ADVICE - n, "%.*s%s",
                              (int)(at - instead), instead, name);
        instead = at + 2;
    }
    if (n < PLAIT_OPTION_ADVICE)
        snprintf(text + n, PLAIT_OPTION_ADVICE - n, "%s", instead);
}

/* Whether the habit has an answer for a program of these options. */
static bool answer_habit(const struct habit *habit, const struct option *table,
                         const char *name, char text[PLAIT_OPTION_ADVICE])
{
    const char *rest = habit->options, *key;
    char one[40];

    while ((rest = take_word(rest, one))) {
        if ((key = strchr(one, '=')) && find_name(table, "set")) {
            snprintf(text, PLAIT_OPTION_ADVICE,
                     "; did you mean --set %s=VALUE?", key + 1);
            return true;
        }
        if (!key && find_name(table, one)) {
            snprintf(text, PLAIT_OPTION_ADVICE, "; did you mean --%s?", one);
            return true;
        }
    }
    if (!habit->instead)
        return false;
    put_name(habit->instead, name, text);
    return true;
}

/* The option's name without dashes and value, as habits have it. */
static void take_name(const char *word, char name[64])
{
    size_t n = 0;

    word += strspn(word, "-");
    for (; word[n] && word[n] != '=' && n < 63; n++)
        name[n] = word[n] == '_' ? '-' : word[n];
    name[n] = '\0';
    if (n > 1 && strspn(name + 1, "0123456789") == n - 1)
        name[1] = '\0'; /* -N2 */
}

/* Whether it is a key of the configuration, which --set sets. */
static bool answer_key(const struct option *table, const char *word,
                       char text[PLAIT_OPTION_ADVICE])
{
    size_t n;

    word += strspn(word, "-");
    n = strcspn(word, "=");
    if (n > 60 || !memchr(word, '.', n) || !find_name(table, "set"))
        return false;
    snprintf(text, PLAIT_OPTION_ADVICE, "; did you mean --set %.*s=VALUE?",
             (int)n, word);
    return true;
}

void plait_option_advise(const struct option *table, const char *word,
                         char text[PLAIT_OPTION_ADVICE])
{
    const char *names[NAMES_MOST];
    int n = 0, nearest;
    char name[64];

    take_name(word, name);
    if (answer_key(table, word, text))
        return;
    for (; table && table[n].name && n < NAMES_MOST; n++)
        names[n] = table[n].name;
    for (size_t i = 0; i < sizeof(habits) / sizeof(habits[0]); i++)
        if (!find_name(table, name) && has_word(habits[i].words, name) &&
            answer_habit(&habits[i], table, name, text))
            return;
    nearest = strncmp(word, "--", 2) == 0 ? plait_nearest(name, names, n) : -1;
    if (nearest >= 0)
        snprintf(text, PLAIT_OPTION_ADVICE, "; did you mean --%s?",
                 names[nearest]);
    else
        snprintf(text, PLAIT_OPTION_ADVICE, "; see --help");
}
