/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/nearest.h"
#include "topology/base/option_words.h"
#include "topology/cli/commands.h"

/* The command `plait`: built-in subcommands, and git-style ones. */

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: a program plait-NAME */
    const char *summary;
} commands[] = {
    {"topo", plait_cmd_topo, "GPUs, links, NICs and cores of a machine"},
    {"plan", plait_cmd_plan, "which rank runs where, and what it costs"},
    {"estimate", plait_cmd_estimate, "memory and time of training a model"},
    {"simulate", plait_cmd_simulate, "one training step as a timeline"},
    {"calibrate", plait_cmd_calibrate, "estimate's constants from own runs"},
    {"run", plait_cmd_run, "start the tasks of a plan without the plugin"},
    {"init", plait_cmd_init, "a configuration for a model and these GPUs"},
    {"keys", plait_cmd_keys, "what a configuration may hold"},
    {"doctor", plait_cmd_doctor, "what is wrong with this installation"},
    {"site", plait_cmd_site, "which rules of the site hold for a job"},
    {"usage", plait_cmd_usage, "which planned steps the site has run"},
    {"prep", NULL, "text or images to tokens"},
    {"train", NULL, "train a model"},
    {"generate", NULL, "text from a model"},
    {"eval", NULL, "the perplexity of a text"},
    {"convert", NULL, "models of Hugging Face to checkpoints, and back"},
    {"probe", NULL, "what the links between the nodes carry"},
    {"report", NULL, "runs as a page of curves"},
    {"watch", NULL, "a run in the terminal"},
    {"stuck", NULL, "who a run that hangs waits for"},
    {"drill", NULL, "what becomes of a job that is hurt on purpose"},
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(void)
{
    printf("Usage: plait COMMAND [OPTION...]\n"
           "       plait --help | --version\n\n"
           "Tensor, pipeline and data parallelism for Slurm: show the "
           "machine, plan a\nlayout, estimate what it costs.\n\nCommands:\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        printf("  %-10s%s\n", commands[i].name, commands[i].summary);
    printf("\nAny other COMMAND runs the program plait-COMMAND.\n"
           "'plait COMMAND --help' or 'plait help COMMAND' explains one "
           "command.\n");
}

/* A site that keeps Plait in its own prefix has plait-train beside plait,
 * not on PATH: look there first. */
static void exec_sibling(const char *program, char **argv)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    char *slash;

    if (n <= 0)
        return;
    path[n] = '\0';
    slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + strlen(program) >= sizeof(path))
        return;
    strcpy(slash + 1, program);
    execv(path, argv);
}

/* What other programs call the same. */
static const char *const other_names[][2] = {
    {"launch", "run"},       {"exec", "run"},        {"start", "run"},
    {"mpirun", "run"},       {"mpiexec", "run"},     {"torchrun", "run"},
    {"srun", "run"},         {"accelerate", "run"},  {"deepspeed", "run"},
    {"pretrain", "train"},   {"finetune", "train"},  {"fit", "train"},
    {"sample", "generate"},  {"chat", "generate"},   {"evaluate", "eval"},
    {"tokenize", "prep"},    {"prepare", "prep"},    {"preprocess", "prep"},
    {"export", "convert"},   {"import", "convert"},  {"monitor", "watch"},
    {"predict", "estimate"}, {"memory", "estimate"}, {"check", "doctor"},
    {"new", "init"},         {"create", "init"},
};

static int find_nearest(const char *name, const char *const names[])
{
    for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]); i++)
        if (strcmp(name, other_names[i][0]) == 0)
            name = other_names[i][1];
    return plait_nearest(name, names, NCOMMANDS);
}

static int unknown_command(const char *name, const char *program)
{
    const char *names[NCOMMANDS];
    int nearest;

    for (size_t i = 0; i < NCOMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, names[i]) == 0)
            return plait_cmd_failed("%s is not installed here; it comes with "
                                    "the package plait-train",
                                    program);
    }
    nearest = find_nearest(name, names);
    if (nearest >= 0)
        return plait_cmd_misused("'%s' is not a plait command; did you mean "
                                 "'%s'?",
                                 name, names[nearest]);
    return plait_cmd_misused("'%s' is not a plait command and there is no "
                             "program %s; see 'plait --help'",
                             name, program);
}

static int run_program(char **argv)
{
    const char *name = argv[0];
    char *program;
    int rc;

    if (strchr(name, '/') || asprintf(&program, "plait-%s", name) < 0)
        return plait_cmd_misused("'%s' is not a plait command; see "
                                 "'plait --help'",
                                 name);
    argv[0] = program;
    exec_sibling(program, argv);
    execvp(program, argv);
    if (errno == ENOENT)
        rc = unknown_command(name, program);
    else
        rc = plait_cmd_failed("cannot run %s: %s", program, strerror(errno));
    free(program);
    return rc;
}

static int run_command(int argc, char **argv)
{
    static char self[] = "plait";

    for (size_t i = 0; i < NCOMMANDS; i++) {
        if (commands[i].run && strcmp(argv[0], commands[i].name) == 0) {
            argv[0] = self;
            return commands[i].run(argc, argv);
        }
    }
    return run_program(argv);
}

/* plait help, plait help COMMAND. */
static int run_help(int argc, char **argv)
{
    static char help[] = "--help";
    char *words[] = {argv[1], help, NULL};

    if (argc > 2)
        return plait_cmd_misused("help: unexpected argument '%s'; see 'plait "
                                 "help %.40s'",
                                 argv[2], argv[1]);
    if (argc == 2 && argv[1][0] != '-')
        return run_command(2, words);
    print_help();
    return PLAIT_EXIT_GOOD;
}

static int unknown_option(const char *word)
{
    static const struct option own[] = {{"help", no_argument, NULL, 'h'},
                                        {"version", no_argument, NULL, 'V'},
                                        {0}};
    char advice[PLAIT_OPTION_ADVICE];

    plait_option_advise(own, word, advice);
    return plait_cmd_misused("unknown option '%.60s'%s", word, advice);
}

int main(int argc, char **argv)
{
    int rc = PLAIT_EXIT_GOOD;

    /* A parent may have had it ignored: then children leave no status. */
    signal(SIGCHLD, SIG_DFL);
    /* hwloc prints long warnings about firmware tables; plait reports errors
     * in one line. A user who sets the variable gets hwloc's too. */
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    if (argc < 2)
        return plait_cmd_misused("a command is missing; see 'plait --help'");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        print_help();
    else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 ||
             strcmp(argv[1], "version") == 0)
        printf("plait %s\n", PACKAGE_VERSION);
    else if (strcmp(argv[1], "help") == 0)
        rc = run_help(argc - 1, argv + 1);
    else if (argv[1][0] == '-')
        return unknown_option(argv[1]);
    else
        rc = run_command(argc - 1, argv + 1);
    /* A full disk must not end with exit status 0. */
    if (fflush(stdout) || ferror(stdout))
        rc = plait_cmd_failed("cannot write to standard output: %s",
                              strerror(errno));
    return rc;
}
