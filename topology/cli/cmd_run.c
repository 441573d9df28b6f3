/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/commands.h"
#include "topology/cli/hand_over.h"
#include "topology/cli/run.h"
#include "topology/layout/launch.h"

/* plait run: start the tasks of a plan where Slurm lacks the plugin, under
 * mpirun, or alone. */

enum {
    NP = PLAIT_NOPTIONS,
    LABEL,
    GRACE,
    ELASTIC,
    HAND_OVER,
    SECRET,
    HELP,
    STANDALONE, /* torchrun's word for one machine */
    NALL
};
/* Options of mpirun and torchrun that mean the same as --np. */
enum { NALSO = 2 };
/* A training may have to write a checkpoint before it ends. */
enum { GRACE_S = 60 };

enum { HELP_LEFT = 23, HELP_WIDTH = 80 };

/* Prints words from column HELP_LEFT on, in as many lines as they need. */
static void print_words(const char *words)
{
    int at = HELP_LEFT;

    while (*words) {
        int n = (int)strcspn(words, " ");

        if (at + n >= HELP_WIDTH) {
            printf("\n%*s", HELP_LEFT, "");
            at = HELP_LEFT;
        }
        printf("%s%.*s", at > HELP_LEFT ? " " : "", n, words);
        at += n + 1;
        words += n + (words[n] == ' ');
    }
    printf("\n");
}

/* The plugin's flags, but --spares, which means more here. */
static void print_flags(void)
{
    for (int i = 0; i < PLAIT_NOPTIONS; i++) {
        const struct plait_option_text *text = &plait_option_texts[i];
        int n;

        if (i == PLAIT_OPTION_SPARES)
            continue;
        n = printf("  --%s%s%s", text->name, text->argument ? " " : "",
                   text->argument ? text->argument : "");
        printf("%*s", n < HELP_LEFT ? HELP_LEFT - n : 1, "");
        print_words(text->help);
    }
}

static void print_help(void)
{
    printf("Usage: srun ... plait run [OPTION...] [--] COMMAND [ARGUMENT...]\n"
           "       mpirun ... plait run [OPTION...] [--] COMMAND...\n"
           "       plait run --np N [OPTION...] [--] COMMAND...\n\n"
           "Start COMMAND as a task of a plan, as srun does with Plait's "
           "plugin.\n\n");
    print_flags();
    printf(
        "  --np N               start N tasks on this machine, and end all "
        "when one fails\n"
        "  --label              with --np: each line begins with the rank\n"
        "  --grace N            with --np: kill what is left N seconds after "
        "SIGTERM (60)\n"
        "  --elastic            with --np or srun: when one dies, others go "
        "on\n"
        "  --spares N           with srun: leave out N nodes, those below a "
        "bound first;\n"
        "                       with --elastic: N more tasks (in Slurm nodes) "
        "wait\n"
        "  --hand-over TRAINER  append the layout to COMMAND: megatron\n"
        "  --secret none        start on several nodes though no secret keeps "
        "others\n"
        "                       from joining as ranks\n"
        "  --help               print this\n");
}

static void fill_options(struct option *options)
{
    static const struct option own[] = {
        {"np", required_argument, NULL, NP},
        {"label", no_argument, NULL, LABEL},
        {"grace", required_argument, NULL, GRACE},
        {"elastic", no_argument, NULL, ELASTIC},
        {"hand-over", required_argument, NULL, HAND_OVER},
        {"secret", required_argument, NULL, SECRET},
        {"help", no_argument, NULL, HELP},
        {"nproc-per-node", required_argument, NULL, NP},
        {"nproc_per_node", required_argument, NULL, NP},
        {"standalone", no_argument, NULL, STANDALONE}};

    for (int i = 0; i < PLAIT_NOPTIONS; i++)
        options[i] = (struct option){
            plait_option_texts[i].name,
            plait_option_texts[i].argument ? required_argument : no_argument,
            NULL, i};
    memcpy(options + PLAIT_NOPTIONS, own, sizeof(own));
}

static int parse_np(struct run *run, const char *text, struct plait_error *err)
{
    char *end;
    long value = strtol(text, &end, 10);

    errno = EINVAL;
    if (*text < '1' || *text > '9' || *end || value > 4096)
        return plait_errorf(err,
                            "--np=%.40s: must be a whole number from 1 to "
                            "4096",
                            text);
    run->np = (int)value;
    return 0;
}

static int parse_grace(struct run *run, const char *text,
                       struct plait_error *err)
{
    char *end;
    long value = strtol(text, &end, 10);

    errno = EINVAL;
    if (*text < '0' || *text > '9' || *end || value > 1000000)
        return plait_errorf(err,
                            "--grace=%.40s: must be a whole number of seconds "
                            "from 0 to 1000000",
                            text);
    run->grace = (int)value;
    return 0;
}

static int parse_hand_over(struct run *run, const char *text,
                           struct plait_error *err)
{
    errno = EINVAL;
    if (strcmp(text, "megatron") != 0)
        return plait_errorf(err,
                            "--hand-over=%.40s: must be megatron; for "
                            "other trainers see plait plan --format",
                            text);
    run->hand_over = 1;
    return 0;
}

static int parse_secret(struct run *run, const char *text,
                        struct plait_error *err)
{
    errno = EINVAL;
    if (strcmp(text, "none") != 0)
        return plait_errorf(err,
                            "--secret=%.40s: must be none; a secret of your "
                            "own goes into PLAIT_SECRET",
                            text);
    run->open = 1;
    return 0;
}

/* mpirun's -n N and -np N. */
static int parse_n(struct run *run, char **argv, struct plait_error *err)
{
    const char *value = optarg;

    if (strcmp(value, "p") == 0)
        value = argv[optind] ? argv[optind++] : "";
    return parse_np(run, value, err);
}

/* -1: go on; else the exit status. */
static int parse_options(struct run *run, int argc, char **argv)
{
    struct option options[NALL + NALSO + 1] = {{0}};
    struct plait_error err;
    int opt, rc = 0;

    fill_options(options);
    opterr = 0;
    while ((opt = getopt_long(argc, argv, "+hn:", options, NULL)) != -1) {
        if (opt == HELP || opt == 'h') {
            print_help();
            return PLAIT_EXIT_GOOD;
        }
        if (opt == '?')
            return plait_cmd_refuse_option(options, "n", argc, argv);
        if (opt == STANDALONE)
            continue;
        if (opt == 'n')
            rc = parse_n(run, argv, &err);
        else if (opt == NP)
            rc = parse_np(run, optarg, &err);
        else if (opt == SECRET)
            rc = parse_secret(run, optarg, &err);
        else if (opt == GRACE)
            rc = parse_grace(run, optarg, &err);
        else if (opt == HAND_OVER)
            rc = parse_hand_over(run, optarg, &err);
        else if (opt == LABEL)
            run->label = 1;
        else if (opt == ELASTIC)
            run->elastic = 1;
        else
            rc = plait_options_set(&run->options, (enum plait_option)opt,
                                   optarg, &err);
        if (rc < 0)
            return plait_cmd_misused("%s", err.text);
    }
    run->command = argv + optind;
    return -1;
}

/* -1: go on; else the exit status. */
static int check_together(struct run *run)
{
    if (!*run->command)
        return plait_cmd_misused("run: a command is missing; see 'plait run "
                                 "--help'");
    if (run->label && !run->np)
        return plait_cmd_misused("run: --label goes with --np (srun has its "
                                 "own)");
    if (run->grace >= 0 && !run->np)
        return plait_cmd_misused("run: --grace goes with --np (Slurm has "
                                 "KillWait)");
    if (run->grace < 0)
        run->grace = GRACE_S;
    /* The spares of --elastic are processes, not nodes to choose from: they
     * imply no preflight. */
    if (run->elastic && !(run->options.given & 1u << PLAIT_OPTION_PREFLIGHT))
        run->options.preflight = 0;
    return -1;
}

static int check_elastic(const struct run *run, struct plait_error *err)
{
    if (!run->elastic || run->place.alone || run->place.slurm)
        return 0;
    errno = EINVAL;
    return plait_errorf(err, "run: --elastic goes with --np or srun: another "
                             "launcher ends all tasks when one dies");
}

/* --spares needs Slurm, since other launchers have no nodes to leave out. */
static int check_spares(const struct run *run, struct plait_error *err)
{
    if (!run->options.spares || run->elastic)
        return 0;
    errno = EINVAL;
    if (!run->place.slurm)
        return plait_errorf(err, "run: --spares goes with --elastic, or with "
                                 "srun");
    return run->options.rendezvous
               ? 0
               : plait_errorf(err, "run: --spares times the nodes, which "
                                   "needs the port of --rendezvous=torch");
}

/* Refuse to plan within another plan, which would contradict it; and where a
 * job's flags made no plan, as the plugin is missing there, which a second plan
 * would hide. */
static int check_unplanned(struct run *run, struct plait_error *err)
{
    const char *task = getenv("SLURM_PROCID");
    struct plait_launch launch;

    run->place.first = !task || strcmp(task, "0") == 0;
    errno = EINVAL;
    if (getenv(PLAIT_ENV_RANK))
        return plait_errorf(err, "run: this task has a plan already "
                                 "(PLAIT_RANK is set): leave out plait run, "
                                 "or srun's flags");
    return plait_launch_read(&launch, NULL, NULL, err) < 0 ? -1 : 0;
}

/* An error that all tasks find is printed by the first one alone, and only that
 * one fails: if another failed, srun (KillOnBadExit) would end the first before
 * it has printed. */
static int refuse(const struct run *run, const struct plait_error *err)
{
    int usage = errno == EINVAL;

    if (run->only_here ? !run->said : run->place.first)
        plait_cmd_failed("%s", err->text);
    else if (!run->only_here)
        return 0;
    return usage ? PLAIT_EXIT_USAGE : PLAIT_EXIT_FAILED;
}

static int hand_over(struct run *run, struct plait_error *err)
{
    if (!run->hand_over)
        return 0;
    if (hand_over_check(HAND_OVER_MEGATRON, &run->part.layout, err) < 0)
        return -1;
    run->command = hand_over_append(&run->part.layout, run->command);
    return run->command ? 0 : plait_errorf(err, "out of memory");
}

/* All that a task needs to know before it becomes its command. */
static int start(struct run *run, struct plait_error *err)
{
    if (run_prepare(run, err) < 0)
        return -1;
    if (run->over)
        return 0;
    if (hand_over(run, err) < 0 ||
        (!run->place.slurm && run_secret(run, err) < 0))
        return -1;
    if (!run->options.preflight || *run->token)
        return 0;
    return plait_errorf(err, "run: --preflight goes with --np, or with tasks "
                             "that know each other by munge");
}

int plait_cmd_run(int argc, char **argv)
{
    static struct run run; /* too large for a stack */
    struct plait_error err;
    int rc;

    plait_options_init(&run.options);
    run.grace = -1;
    rc = parse_options(&run, argc, argv);
    if (rc < 0)
        rc = check_together(&run);
    if (rc >= 0)
        return rc;
    errno = 0;
    if ((run.np == 0 && check_unplanned(&run, &err) < 0) ||
        run_place_find(&run.place, run.np, &err) < 0 ||
        check_elastic(&run, &err) < 0 || check_spares(&run, &err) < 0) {
        rc = refuse(&run, &err);
    } else if (start(&run, &err) < 0) {
        errno = 0;
        rc = refuse(&run, &err);
    } else if (run.over) {
        rc = run.status;
    } else if (run.place.alone) {
        rc = run_alone(&run);
    } else {
        run_task(&run, run.place.local, &err);
        rc = plait_cmd_failed("%s", err.text);
    }
    run_release(&run);
    return rc;
}
