/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "tap.h"
#include "topology/cli/run.h"

/* Messages between the tasks of plait run: written and parsed again. */

static const char secret[] =
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
static const char token[] = "0123456789abcdef0123456789abcdef";

static int reads(const char *text)
{
    struct run_brief brief;

    return run_brief_parse(text, "7.0", &brief) == 0;
}

static void check_brief(void)
{
    struct run_brief in = {.code = "a plan"}, out;
    static char text[RUN_BRIEF_SIZE], code[RUN_BRIEF_SIZE];

    strcpy(in.secret, secret);
    strcpy(in.token, token);
    strcpy(in.master, "fe80::1%eth0");
    in.port = 26234;
    ok(run_brief_print(&in, "7.0", text) == 0 &&
           run_brief_parse(text, "7.0", &out) == 0 &&
           !strcmp(out.secret, secret) && !strcmp(out.token, token) &&
           !strcmp(out.master, in.master) && out.port == 26234 &&
           !strcmp(out.code, "a plan"),
       "a plan with its secret comes back");
    ok(run_brief_parse(text, "7.1", &out) < 0, "... not in another step");
    in = (struct run_brief){.code = "v1"};
    ok(run_brief_print(&in, "7.0", text) == 0 &&
           run_brief_parse(text, "7.0", &out) == 0 && !*out.secret &&
           !*out.token && !*out.master,
       "... and without one");
    memset(code, 'x', sizeof(code) - 1);
    in.code = code;
    ok(run_brief_print(&in, "7.0", text) < 0, "too long a plan is refused");
    ok(reads("plait plan 7.0 - - - 0 v1") &&
           !reads("plait plan 7.0 - - - 0 ") && !reads("plait plan 7.0 - -") &&
           !reads("plait plan 7.0 12 - - 0 v1") &&
           !reads("plait plan 7.0 - 12 - 0 v1") &&
           !reads("plait plan 7.0 - - $(id) 0 v1") &&
           !reads("plait plan 7.0 - - - 65536 v1") &&
           !reads("plait plan 7.0 - - - -1 v1") && !reads(""),
       "what is no plan, secret, token, host or port is refused");
}

static int asks(const char *text)
{
    struct run_request request;

    return run_request_parse(text, "7.0", 3, &request) == 0;
}

static void check_request(void)
{
    struct run_request in = {.port = 61003}, out;
    char text[256];

    strcpy(in.token, token);
    run_request_print(&in, "7.0", 3, text, sizeof(text));
    ok(run_request_parse(text, "7.0", 3, &out) == 0 && out.port == 61003 &&
           strcmp(out.token, token) == 0,
       "a node's request comes back: %s", text);
    ok(run_request_parse(text, "7.0", 2, &out) < 0 &&
           run_request_parse(text, "7.1", 3, &out) < 0,
       "... not as another node's, nor another step's");
    ok(!asks("plait node 7.0 3") && !asks("plait node 7.0 3 61003 abc") &&
           !asks("plait node 7.0 3 -5 0123456789abcdef0123456789abcdef") &&
           !asks("plait node 7.0 3 0 0123456789abcdef0123456789abcdef more") &&
           !asks("plait node 7.0 3 0 0123456789ABCDEF0123456789abcdef") &&
           !asks(""),
       "what is no request is refused");
}

/* Ports of neighbouring steps differ, and so do those of one step. */
static void check_ports(void)
{
    int ports[RUN_PORTS], other[RUN_PORTS], twice = 0, out = 0, same = 0;

    for (unsigned job = 1; job < 2000; job++) {
        run_list_ports(job, job % 3, ports);
        run_list_ports(job + 1, job % 3, other);
        same += ports[0] == other[0];
        for (int i = 0; i < RUN_PORTS; i++) {
            out += ports[i] < 25003 || ports[i] > 29399;
            for (int k = 0; k < i; k++)
                twice += ports[i] == ports[k];
        }
    }
    ok(!twice && !out && same < 10,
       "32 ports of each step: %d twice, %d of others, %d as the next job's",
       twice, out, same);
}

static void check_chosen(void)
{
    static const int out[6] = {0, 1, 0, 0, 1, 0}, none[6];
    static const int ids[6] = {0, 0, 1, 2, 0, 3};
    struct run_chosen chosen;
    char text[64];
    int good = 0;

    ok(run_chosen_print(out, 6, "n1", 61007, "v1", text, sizeof(text)) == 0 &&
           strcmp(text, "1,4 n1 61007 v1") == 0,
       "nodes that are left out: %s", text);
    for (int id = 0; id < 6; id++)
        good += run_chosen_parse(text, id, &chosen) == 0 &&
                chosen.left_out == out[id] &&
                (out[id] || chosen.id == ids[id]) && chosen.port == 61007 &&
                !strcmp(chosen.master, "n1") && !strcmp(chosen.code, "v1");
    ok(good == 6, "each node knows whether it is one, and its new number");
    ok(run_chosen_print(none, 6, "n1", 0, "v1", text, sizeof(text)) == 0 &&
           run_chosen_parse(text, 5, &chosen) == 0 && chosen.id == 5 &&
           !chosen.left_out,
       "none: %s", text);
    ok(run_chosen_print(out, 6, "n1", 0, "v1", text, 8) < 0, "no room for it");
    ok(run_chosen_parse("4,1 n1 0 v1", 2, &chosen) < 0 &&
           run_chosen_parse("1,1 n1 0 v1", 2, &chosen) < 0 &&
           run_chosen_parse("99999999999 n1 0 v1", 2, &chosen) < 0 &&
           run_chosen_parse("1 n1 65536 v1", 2, &chosen) < 0 &&
           run_chosen_parse("1", 2, &chosen) < 0 &&
           run_chosen_parse("", 2, &chosen) < 0,
       "what is no such list is refused");
}

int main(void)
{
    check_brief();
    check_request();
    check_ports();
    check_chosen();
    return done_testing();
}
