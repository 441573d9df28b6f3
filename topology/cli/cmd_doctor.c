/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <getopt.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "topology/base/text.h"
#include "topology/cli/cmd_doctor.h"
#include "topology/cli/commands.h"

/* plait doctor: what is wrong, one sentence for each finding. */

const char *const finding_names[] = {"good", "note", "unchecked", "bad"};

/* The column at which the texts begin, and the last one at most. */
enum { INDENT = 15, WIDTH_MOST = 100 };

#ifdef HAVE_SLURM_SPANK_H
static const bool built_with_slurm = true;
#else
static const bool built_with_slurm = false;
#endif

void findings_add(struct findings *findings, enum finding_kind kind,
                  const char *about, const char *fmt, ...)
{
    struct finding *finding = &findings->list[findings->n];
    va_list ap;

    if (findings->n == FINDINGS_MOST)
        return;
    findings->n++;
    finding->kind = kind;
    finding->about = about;
    va_start(ap, fmt);
    vsnprintf(finding->text, sizeof(finding->text), fmt, ap);
    va_end(ap);
    plait_text_clean(finding->text);
}

/* On a terminal in lines of its width, broken at blanks; to a file or a pipe in
 * one, for programs such as grep. */
static void print_wrapped(const char *text)
{
    struct winsize size = {0};
    int room = 0, used = 0;

    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        room = (size.ws_col > WIDTH_MOST ? WIDTH_MOST : size.ws_col) - INDENT;
    while (*text) {
        int n = (int)strcspn(text, " ");

        if (used && room >= INDENT && used + 1 + n > room) {
            printf("\n%*s", INDENT, "");
            used = 0;
        }
        printf("%s%.*s", used ? " " : "", n, text);
        used += n + (used > 0);
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

void finding_print(enum finding_kind kind, const char *about, const char *text)
{
    static const char *const marks[] = {"ok", "--", "??", "!!"};
    char line[700];

    snprintf(line, sizeof(line), "%s%s",
             kind == FINDING_UNCHECKED ? "not checked: " : "", text);
    printf("%s  %-10s ", marks[kind], about);
    print_wrapped(line);
}

int doctor_exit(int bad, int unchecked, int strict)
{
    enum { UNCHECKED = 3 }; /* what monitoring takes for "unknown" */

    return bad                   ? PLAIT_EXIT_FAILED
           : strict && unchecked ? UNCHECKED
                                 : PLAIT_EXIT_GOOD;
}

static int count_kind(const struct findings *f, enum finding_kind kind)
{
    int n = 0;

    for (int i = 0; i < f->n; i++)
        n += f->list[i].kind == kind;
    return n;
}

static void print_text(const struct findings *f)
{
    int bad = count_kind(f, FINDING_BAD);

    for (int i = 0; i < f->n; i++)
        finding_print(f->list[i].kind, f->list[i].about, f->list[i].text);
    if (bad)
        printf("\n%d thing%s to be put right (!!).\n", bad,
               bad == 1 ? " is" : "s are");
    else
        printf("\nNothing is wrong.\n");
}

static json_t *to_json(const struct findings *f)
{
    json_t *checks = json_array();

    for (int i = 0; i < f->n; i++)
        json_array_append_new(checks, json_pack("{s:s,s:s,s:s}", "about",
                                                f->list[i].about, "kind",
                                                finding_names[f->list[i].kind],
                                                "text", f->list[i].text));
    return json_pack("{s:b,s:i,s:o}", "good", count_kind(f, FINDING_BAD) == 0,
                     "unchecked", count_kind(f, FINDING_UNCHECKED), "checks",
                     checks);
}

static int print_help(void)
{
    printf(
        "Usage: plait doctor [OPTION...]\n\n"
        "Check this machine, Slurm and the plugin in it, and say what is "
        "wrong\nand what to do about it: ok is right, -- worth knowing, ?? "
        "not checked,\n!! wrong. Exits with 1 if something is wrong.\n\n"
        "  --nodes LIST       the same on these nodes, by one srun: what they\n"
        "                     have in common stands once\n"
        "  --strict           exit with 3 if nothing is wrong, but something\n"
        "                     could not be checked\n"
        "  --json             print one JSON document\n"
        "  --report           print a line of JSON for each check, and exit "
        "with 0\n"
        "  --help             print this\n");
    return PLAIT_EXIT_GOOD;
}

struct way {
    const char *nodes;
    int json, report, strict;
};

static struct doctor *create_doctor(void)
{
    struct doctor *doctor = calloc(1, sizeof(*doctor));

    if (!doctor || !(doctor->findings = calloc(1, sizeof(struct findings)))) {
        free(doctor);
        return NULL;
    }
    snprintf(doctor->cache, sizeof(doctor->cache), "%s", PLAIT_CACHEDIR);
    return doctor;
}

static void destroy_doctor(struct doctor *doctor)
{
    free(doctor->findings);
    free(doctor->config);
    free(doctor);
}

/* A build without Slurm's headers makes no plugin. Where none of another build
 * is there, only what holds for plait run is reported: that Slurm has no plugin
 * is what its user chose, and so is a Slurm that is not set up. */
static bool lacks_plugin(struct doctor *doctor, int before)
{
    char dirs[DOCTOR_PATH], path[DOCTOR_PATH];

    if (built_with_slurm || doctor->nlines ||
        doctor_search_plugins(doctor, "spank_plait.so", dirs, path) == 0)
        return false;
    doctor->findings->n = doctor->config ? before : 0;
    findings_add(doctor->findings, FINDING_NOTE, "plugin",
                 "this build of Plait has no Slurm parts (configure was run "
                 "--without-slurm, or found no slurm/spank.h), so srun has no "
                 "--tp and Slurm was not checked further; plait run starts "
                 "tasks, under srun too. For srun's flags install libslurm-dev "
                 "(RPM: slurm-devel) and build Plait again --with-slurm");
    return true;
}

static void check_slurm(struct doctor *doctor)
{
    char version[64];
    int before;

    doctor_check_slurm(doctor);
    if (!doctor->slurm)
        return;
    doctor_check_munge(doctor);
    before = doctor->findings->n;
    doctor_check_plugstack(doctor);
    if (lacks_plugin(doctor, before))
        return;
    doctor_check_library(doctor);
    doctor_version(doctor, version, sizeof(version));
    if (doctor->library[0])
        findings_add(doctor->findings, FINDING_GOOD, "version", "%s", version);
    doctor_check_srun(doctor);
}

static int run_nodes(const struct way *way)
{
    struct doctor *doctor = create_doctor();
    char version[64];
    int rc;

    if (!doctor)
        return plait_cmd_failed("out of memory");
    check_slurm(doctor);
    doctor_version(doctor, version, sizeof(version));
    rc = doctor->slurm
             ? doctor_nodes(way->nodes, version, way->json, way->strict)
             : plait_cmd_failed("no srun on PATH: this machine has no Slurm");
    destroy_doctor(doctor);
    return rc;
}

static int run_doctor(const struct way *way)
{
    struct doctor *doctor = create_doctor();
    struct findings *f;
    int rc = PLAIT_EXIT_GOOD;

    if (!doctor)
        return plait_cmd_failed("out of memory");
    f = doctor->findings;
    check_slurm(doctor);
    doctor_check_cache(doctor);
    doctor_check_site(doctor);
    doctor_check_machine(doctor);
    if (way->report)
        doctor_report(f);
    else if (way->json)
        rc = plait_cmd_json(to_json(f));
    else
        print_text(f);
    /* Of a report, the exit status says whether it is there. */
    if (rc == PLAIT_EXIT_GOOD && !way->report)
        rc = doctor_exit(count_kind(f, FINDING_BAD),
                         count_kind(f, FINDING_UNCHECKED), way->strict);
    destroy_doctor(doctor);
    return rc;
}

int plait_cmd_doctor(int argc, char **argv)
{
    enum { JSON = 256, NODES, REPORT, STRICT };
    static const struct option options[] = {
        {"json", no_argument, NULL, JSON},
        {"nodes", required_argument, NULL, NODES},
        {"report", no_argument, NULL, REPORT},
        {"strict", no_argument, NULL, STRICT},
        {"help", no_argument, NULL, 'h'},
        {0}};
    struct way way = {0};
    int opt;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (opt) {
        case JSON:
            way.json = 1;
            break;
        case NODES:
            way.nodes = optarg;
            break;
        case REPORT:
            way.report = 1;
            break;
        case STRICT:
            way.strict = 1;
            break;
        case 'h':
            return print_help();
        default:
            return plait_cmd_refuse_option(options, "h", argc,
                                           argv); /* getopt_long has said why */
        }
    }
    if (optind < argc)
        return plait_cmd_misused("doctor: unexpected argument '%s'",
                                 argv[optind]);
    if (way.report && (way.json || way.nodes))
        return plait_cmd_misused("doctor: --report goes with neither --json "
                                 "nor --nodes");
    return way.nodes ? run_nodes(&way) : run_doctor(&way);
}
