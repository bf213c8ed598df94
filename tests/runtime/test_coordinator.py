"""Where process 0 listens for the others: on the loopback address alone, if it was given one."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppmtf_jax.runtime.devices import loopback_address

LONGEST_WAIT_S = 60
LISTENING = "0A"
JOIN = """
import sys
from ppmtf_jax.runtime.devices import join_processes
join_processes(sys.argv[1], 2, int(sys.argv[2]))
print("met", flush=True)
sys.stdin.read(1)
"""


def listening(process: int) -> list[tuple[str, int]]:
    """The addresses and ports on which a process listens, by the tables of the kernel."""
    own = {os.readlink(each) for each in Path(f"/proc/{process}/fd").iterdir() if each.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != LISTENING or f"socket:[{fields[9]}]" not in own:
                continue
            address, port = fields[1].split(":")
            # Four bytes at a time, each in the order of this machine.
            raw = b"".join(struct.pack("=I", int(address[i : i + 8], 16)) for i in range(0, len(address), 8))
            family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
            found.append((socket.inet_ntop(family, raw), int(port, 16)))
    return found


def is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


@pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="needs the tables of Linux")
def test_nobody_else_can_reach_the_coordinator():
    """Before all have met, and afterwards. The wildcard address "::" was in both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    words = [sys.executable, "-c", JOIN, f"localhost:{port}"]
    first = subprocess.Popen([*words, "0"], **how)
    processes = [first]
    try:
        end = time.monotonic() + LONGEST_WAIT_S
        while port not in dict(map(reversed, listening(first.pid))) and time.monotonic() < end:
            time.sleep(0.05)
        waiting = listening(first.pid)
        processes.append(subprocess.Popen([*words, "1"], **how))
        for each in processes:
            assert "met\n" in each.stdout
        met = [found for each in processes for found in listening(each.pid)]
    finally:
        for each in processes:
            each.kill()
            each.communicate()
    assert [each for each in waiting if each[1] == port]
    # The sockets of Gloo listen at the address of the host's name, which is another one on many machines.
    assert all(is_loopback(address) for address, _ in waiting)
    assert all(is_loopback(address) for address, at in met if at == port)
    assert not any(ipaddress.ip_address(address).is_unspecified for address, _ in met)


def test_other_addresses_are_no_loopback():
    assert loopback_address("127.0.0.1") == "127.0.0.1"
    assert loopback_address("::1") == "::1"
    for address in ("0.0.0.0", "::", "192.0.2.1"):
        assert loopback_address(address) is None
