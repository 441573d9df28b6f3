/* SPDX-License-Identifier: Apache-2.0 */
/* What a preflight reads of what plait-probe says of GPUs, and that one which
 * hangs is ended. The program is played by scripts. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "preflight_files.h"
#include "tap.h"
#include "topology/base/clock.h"
#include "topology/start/meeting.h"
#include "topology/start/port.h"
#include "topology/start/preflight.h"

/* ---- what it prints ---- */

static void check_lines(void)
{
    static const struct {
        const char *text;
        double late; /* seconds since "begun", 0: it has ended by itself */
        enum plait_preflight_gpu_state state;
        double product, tp;
        const char *note;
    } cases[] = {
        {"", 0, PLAIT_PREFLIGHT_GPU_UNKNOWN, 0, 0, ""},
        {"begun\nproduct 7e14\nconnected\nring tp 3e11\nring dp 5e10\nend\n", 0,
         PLAIT_PREFLIGHT_GPU_TIMED, 7e14, 3e11, ""},
        {"", 1, PLAIT_PREFLIGHT_GPU_UNKNOWN, 0, 0,
         "CUDA has not started in 6 s"},
        {"started\n", 1, PLAIT_PREFLIGHT_GPU_UNKNOWN, 0, 0,
         "not all products were timed in 6 s"},
        {"begun\n", 2.1, PLAIT_PREFLIGHT_GPU_STUCK, 0, 0, ""},
        {"begun\nNCCL INFO\n", 2.1, PLAIT_PREFLIGHT_GPU_STUCK, 0, 0, ""},
        {"begun\n", 1.9, PLAIT_PREFLIGHT_GPU_UNKNOWN, 0, 0,
         "not all products were timed in 6 s"},
        {"begun\nproduct 7e14\nend\n", 1, PLAIT_PREFLIGHT_GPU_TIMED, 7e14, 0,
         ""},
        {"n1:7 NCCL INFO a\nbegun\nproduct 7e14\nn1:7 NCCL INFO end\nend\n"
         "n1:7 NCCL INFO b\n",
         0, PLAIT_PREFLIGHT_GPU_TIMED, 7e14, 0, ""},
        {"begun\nproduct 7e14\n", 1, PLAIT_PREFLIGHT_GPU_TIMED, 7e14, 0,
         "NCCL has not connected the ranks in 6 s"},
        {"begun\nproduct 7e14\nconnected\nring tp 3e11\nring d", 1,
         PLAIT_PREFLIGHT_GPU_TIMED, 7e14, 3e11,
         "not all rings of NCCL were timed in 6 s"},
        {"unusable no (GPU); |x\nnote y\nend\n", 0,
         PLAIT_PREFLIGHT_GPU_UNUSABLE, 0, 0, "no ?GPU?? ?x"},
        {"begun\nproduct 7e14\nnote NCCL: refused\nend\n", 0,
         PLAIT_PREFLIGHT_GPU_TIMED, 7e14, 0, "NCCL: refused"},
        {"begun\nproduct 7e14\n", 0, PLAIT_PREFLIGHT_GPU_TIMED, 7e14, 0,
         "plait-probe ended before it had timed all"},
        {"begun\nproduct nan\nring tp -1\nend\n", 0,
         PLAIT_PREFLIGHT_GPU_UNKNOWN, 0, 0, ""},
        {"half a lin", 0, PLAIT_PREFLIGHT_GPU_UNKNOWN, 0, 0, ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plait_preflight_gpu gpu = {.busid = "0000:05:00.0"};
        char text[256];

        snprintf(text, sizeof(text), "%s", cases[i].text);
        plait_preflight_read_probe(text, cases[i].late > 0, cases[i].late,
                                   &gpu);
        ok(gpu.state == cases[i].state && gpu.product == cases[i].product &&
               gpu.ring[0] == cases[i].tp &&
               strcmp(gpu.note, cases[i].note) == 0,
           "what it prints, case %zu: %d %g %g \"%s\"", i, (int)gpu.state,
           gpu.product, gpu.ring[0], gpu.note);
    }
}

static int reads(const char *text)
{
    struct plait_preflight_gpu gpu;

    return plait_preflight_read_gpu(text, &gpu) == 0;
}

static void check_texts(void)
{
    struct plait_preflight_report in = {.node = "n1",
                                        .node_rank = 1,
                                        .product = 2e9,
                                        .memory = 3e9,
                                        .nedges = 1,
                                        .edge = {{3, 4e9}}},
                                  out;
    char text[768];

    in.gpu = (struct plait_preflight_gpu){
        .state = PLAIT_PREFLIGHT_GPU_TIMED,
        .busid = "0000:05:00.0",
        .type = 0x2330,
        .product = 7e14,
        .ring = {3e11, 0, 0, 5e10},
        .wide = 8,
        .note = "a note of some words",
    };
    plait_preflight_print_report(&in, text, sizeof(text));
    ok(plait_preflight_read_report(text, 4, 1, &out) == 0 && out.nedges == 1 &&
           memcmp(&in.gpu, &out.gpu, sizeof(in.gpu)) == 0,
       "what is known of a GPU comes back: %s", text);
    in.gpu = (struct plait_preflight_gpu){.busid = "0000:05:00.0"};
    plait_preflight_print_report(&in, text, sizeof(text));
    ok(plait_preflight_read_report(text, 4, 1, &out) == 0 &&
           !strstr(text, "0000"),
       "where nothing is, nothing is said: %s", text);
    memset(in.faults, 'x', sizeof(in.faults) - 1);
    in.nedges = PLAIT_PREFLIGHT_EDGES;
    for (int i = 0; i < in.nedges; i++)
        in.edge[i] = (struct plait_preflight_edge){3, 1.234e10};
    memset(in.gpu.note, 'y', sizeof(in.gpu.note) - 1);
    plait_preflight_print_report(&in, text, sizeof(text));
    ok(plait_preflight_read_report(text, 4, 1, &out) == 0 &&
           strcmp(out.gpu.note, in.gpu.note) == 0,
       "the longest report has room: %zu bytes", strlen(text));
    ok(reads("1 0000:05:00.0 16 1 2 0 0 3 8 ") &&
           !reads("9 5:0 16 1 2 0 0 3 8 ") &&
           !reads("1 $(id) 16 1 2 0 0 3 8 ") &&
           !reads("1 5:0 16 nan 2 0 0 3 8 ") &&
           !reads("1 5:0 16 1 2 0 0 inf 8 ") &&
           !reads("1 5:0 16 1 2 0 0 3 16 ") &&
           !reads("1 5:0 16 1 2 0 0 -3 8 ") && !reads("1 5:0 16 1 2 0 0 3 8") &&
           !reads("1 5:0 16 1 2 0 0 3"),
       "what no task says is refused");
}

/* ---- the program itself ---- */

static void put_probe(const char *body)
{
    char path[128];

    put_program("plait-probe", body, path);
}

static void check_find(void)
{
    char probe[128], path[256], want[128], tight[8];

    put_probe("exit 0");
    snprintf(want, sizeof(want), "%s/plait-probe", folder);
    snprintf(path, sizeof(path), "/nowhere::.:%s:/bin", folder);
    plait_preflight_find_probe(path, NULL, probe, sizeof(probe));
    ok(strcmp(probe, want) == 0, "it is found on PATH: %s", probe);
    plait_preflight_find_probe("/nowhere", folder, probe, sizeof(probe));
    ok(strcmp(probe, want) == 0, "... and beside Plait: %s", probe);
    plait_preflight_find_probe("/nowhere:.:", "/nowhere", probe, sizeof(probe));
    ok(!*probe, "... or nowhere: %s", probe);
    plait_preflight_find_probe(path, NULL, tight, sizeof(tight));
    ok(!*tight, "... where it has no room");
}

static struct plait_preflight_contact here = {.node_rank = 0, .gpu = 1};

static struct plait_preflight_gpu probe(const char *busid)
{
    static char variable[] = "MASTER_PORT=1", spares[] = "PLAIT_SPARES=2",
                path[] = "PATH=/usr/bin:/bin",
                *env[] = {variable, spares, path, NULL};
    struct plait_launch launch = {.world_size = 1};
    struct plait_preflight_report report = {.node = "here"};
    char program[128];
    struct plait_preflight p = {
        .launch = &launch, .probe = program, .env = env};

    snprintf(program, sizeof(program), "%s/plait-probe", folder);
    plait_layout_init(&launch.layout);
    snprintf(launch.gpu_busid, sizeof(launch.gpu_busid), "%s", busid);
    plait_preflight_probe_gpu(&p, 7001, &here, &report);
    return report.gpu;
}

/* Whether the processes whose ids it wrote are gone. */
static int have_ended(const char *name)
{
    int id = atoi(read_file(name));

    for (int i = 0; i < 500 && id > 0 && kill(id, 0) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return id > 0 && kill(id, 0) < 0;
}

/* Libraries log on stdout what NCCL_DEBUG and others ask for. */
static void check_noise(void)
{
    struct plait_preflight_gpu gpu;

    put_probe("echo NCCL INFO; printf 'begun\\nMPI\\nproduct 7e14\\n'\n"
              "i=0; while [ $i -lt 4000 ]; do i=$((i + 1))\n"
              "echo NCCL INFO a line of a library; done\n"
              "echo >noisy");
    gpu = probe("0000:05:00.0");
    ok(gpu.state == PLAIT_PREFLIGHT_GPU_TIMED && gpu.product == 7e14,
       "what libraries print does no harm");
    ok(strcmp(read_file("noisy"), "\n") == 0,
       "... and all of it is read: the program ends");
}

static void check_program(void)
{
    struct plait_preflight_gpu gpu;
    double begin;

    put_probe("echo $* $MASTER_PORT $PLAIT_SPARES >said\n"
              "printf 'begun\\nproduct 7e14\\nend\\n'");
    gpu = probe("0000:05:00.0");
    ok(gpu.state == PLAIT_PREFLIGHT_GPU_TIMED && gpu.product == 7e14 &&
           strcmp(gpu.busid, "0000:05:00.0") == 0,
       "a GPU is timed");
    ok(strcmp(read_file("said"), "--preflight=all 7001\n") == 0,
       "... by a program with a port of its own, and no spare tasks: %s",
       read_file("said"));
    here.gpu = 0;
    probe("0000:05:00.0");
    here.gpu = 1;
    ok(strncmp(read_file("said"), "--preflight=product ", 20) == 0,
       "... no rings where another task has no GPU: %s", read_file("said"));
    gpu = probe("");
    ok(gpu.state == PLAIT_PREFLIGHT_GPU_UNKNOWN && !gpu.busid[0],
       "a task without a GPU starts nothing");
    put_probe("exit 2");
    gpu = probe("0000:05:00.0");
    ok(gpu.state == PLAIT_PREFLIGHT_GPU_UNKNOWN && !gpu.note[0],
       "one that knows no such flag says nothing: %s", gpu.note);
    put_probe("trap '' TERM; sleep 60 & echo $! >other; echo $$ >self\n"
              "echo begun; wait; sleep 60");
    plait_preflight_probe_seconds = 3;
    begin = plait_clock_now();
    gpu = probe("0000:05:00.0");
    ok(gpu.state == PLAIT_PREFLIGHT_GPU_STUCK && plait_clock_now() - begin < 30,
       "one that hangs is left");
    ok(have_ended("self") && have_ended("other"),
       "... and ended, with what it has started");
    plait_preflight_probe_seconds = 6;
}

/* ---- a whole preflight ---- */

static void say(void *arg, const char *text)
{
    FILE *file = fopen(arg, "a");

    if (file) {
        fprintf(file, "%s\n", text);
        fclose(file);
    }
}

/* Two tasks that believe to be on two nodes. */
static int fly(int rank, int port, const char *report)
{
    struct plait_launch launch = {.rank = rank,
                                  .world_size = 2,
                                  .node_rank = rank,
                                  .nnodes = 2,
                                  .master_port = port};
    char program[128], out[128], node[8];
    struct plait_preflight p = {.launch = &launch,
                                .node = node,
                                .token = "0123456789abcdef0123456789abcdef",
                                .say = say,
                                .arg = out,
                                .report = report,
                                .probe = program};

    snprintf(node, sizeof(node), "n%d", rank);
    snprintf(program, sizeof(program), "%s/plait-probe", folder);
    snprintf(out, sizeof(out), "%s/flown", folder);
    plait_layout_init(&launch.layout);
    launch.layout.size[PLAIT_TP] = 2;
    strcpy(launch.master_addr, "127.0.0.1");
    strcpy(launch.gpu_busid, rank ? "0000:06:00.0" : "0000:05:00.0");
    setenv("RANK", rank ? "1" : "0", 1);
    return plait_preflight_run(&p);
}

/* Other processes on this machine may be named too. */
static void check_flight(void)
{
    int port = 27003 + (int)getpid() % 1000, hold, status, ports[2] = {0, 0};
    char report[128];
    pid_t pid;

    put_probe("echo $MASTER_PORT >port.$RANK; echo begun\n"
              "case $RANK in\n"
              "0) echo product 3e14; echo connected; echo ring tp 2e10 ;;\n"
              "*) echo product 7e14; echo connected; echo ring tp 1e11 ;;\n"
              "esac\n"
              "echo note a note; echo end");
    snprintf(report, sizeof(report), "%s/report", folder);
    hold = plait_master_port_take(&port);
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(fly(1, port, report) != 0);
    status = fly(0, port, report);
    waitpid(pid, NULL, 0);
    close(hold);
    ok(status == PLAIT_PREFLIGHT_EXIT &&
           strstr(read_file("flown"),
                  "\npreflight: n0: GPU 0000:05:00.0: a product at 0.43 of the "
                  "median (300 of 700 TFLOP/s)"),
       "a task whose GPU is slow stops the step: %s", read_file("flown"));
    ok(strstr(read_file("flown"),
              "warning: preflight: n0: a note, a tp ring over several nodes is "
              "at 0.20 of the median (20 of 100 GB/s); and of 1 more node\n") ==
               read_file("flown") &&
           !strstr(read_file("flown"), "its tp ring"),
       "... after a line of what is no node's fault");
    ok(strstr(read_file("report"),
              "\"rings_gbs\": {\"tp\": 20}, \"notes\": \"a note, a tp ring") !=
           NULL,
       "... which is in the report: %s", read_file("report"));
    ports[0] = atoi(read_file("port.0"));
    ports[1] = atoi(read_file("port.1"));
    ok(ports[0] > 0 && ports[0] == ports[1] && ports[0] != port,
       "the programs meet at one port, which is not MASTER_PORT: %d, %d, %d",
       ports[0], ports[1], port);
}

/* A task whose Plait says other things in the first meeting. */
static void join_old(int port)
{
    struct plait_meeting_place place = {.port = port, .patience = 10};
    char answer[PLAIT_MEETING_ANSWER];
    struct plait_error err;

    strcpy(place.host, "127.0.0.1");
    strcpy(place.token, "0123456789abcdef0123456789abcdef");
    plait_meeting_join(&place, 0, "contact 1,127.0.0.1,7000", 20, answer, &err);
}

static void check_mix(void)
{
    int port = 28003 + (int)getpid() % 1000;
    int hold = plait_master_port_take(&port);
    double begin = plait_clock_now();
    char path[128];
    pid_t pid;

    snprintf(path, sizeof(path), "%s/flown", folder);
    unlink(path);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        join_old(port);
        _exit(0);
    }
    ok(fly(0, port, NULL) == PLAIT_PREFLIGHT_EXIT &&
           strcmp(read_file("flown"),
                  "preflight: the nodes have different versions of Plait; "
                  "install one on all\n") == 0,
       "two versions are refused: %s", read_file("flown"));
    waitpid(pid, NULL, 0);
    close(hold);
    ok(plait_clock_now() - begin < 30, "... at once");
}

int main(void)
{
    char command[128];

    snprintf(folder, sizeof(folder), "%s/plait-gpu-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder))
        return skip_all("no folder for files");
    check_lines();
    check_texts();
    check_find();
    check_program();
    check_noise();
    check_flight();
    check_mix();
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0)
        diag("%s stays", folder);
    return done_testing();
}
