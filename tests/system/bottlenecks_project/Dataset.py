"""Points with labels, and two sets that are slow to give them: from a slow drive, and by a slow transform."""

import os
import socket
import struct
import threading
import time

import torch

import roost

SAMPLES = 65536


class Points(roost.Dataset):
    def build(self):
        slow, features = self.args["bottleneck"], self.args["features"]
        if slow == "reading":
            return roost.Data(train=FromDrive(SAMPLES, features, self.args["latency"]))
        if slow == "transform":
            return roost.Data(train=Transformed(SAMPLES, features))
        valid = InMemory(2048, features) if slow == "validation" else None
        return roost.Data(train=InMemory(SAMPLES, features), valid=valid)


class InMemory(torch.utils.data.Dataset):
    draws_randomness = False

    def __init__(self, samples, features):
        generator = torch.Generator().manual_seed(0)
        self.points = torch.randn(2048, features, generator=generator)
        self.labels = (self.points.sum(1) > 0).long()
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return self.points[index % 2048], self.labels[index % 2048]


class FromDrive(InMemory):
    """Each sample is read from a drive that answers late, as one in a network or a disk that seeks."""

    def __init__(self, samples, features, latency):
        super().__init__(samples, features)
        self.drive = Drive(features, latency)

    def __getitem__(self, index):
        sample = torch.frombuffer(bytearray(self.drive.read(index % 2048)), dtype=torch.float32)
        return sample, (sample.sum() > 0).long()


class Drive:
    """A process that answers each request late, whatever the number of requests at a time."""

    def __init__(self, features, latency):
        self.latency = latency
        self.path = f"\0roost-drive-{os.getpid()}"
        self.size, self.mine, self.connection = 4 * features, 0, None
        server = socket.socket(socket.AF_UNIX)
        server.bind(self.path)
        server.listen(64)
        if os.fork() == 0:
            parent = os.getppid()
            threading.Thread(target=self.serve, args=(server,), daemon=True).start()
            while os.getppid() == parent:
                time.sleep(0.2)
            os._exit(0)
        server.close()

    def serve(self, server):
        while True:
            threading.Thread(target=self.answer, args=(server.accept()[0],), daemon=True).start()

    def answer(self, connection):
        while request := connection.recv(8):
            time.sleep(self.latency)
            (seed,) = struct.unpack("q", request)
            generator = torch.Generator().manual_seed(seed)
            connection.sendall(torch.randn(self.size // 4, generator=generator).numpy().tobytes())

    def read(self, index):
        if self.mine != os.getpid():  # each loader worker has its own connection
            self.mine, self.connection = os.getpid(), socket.socket(socket.AF_UNIX)
            self.connection.connect(self.path)
        self.connection.sendall(struct.pack("q", index))
        return self.connection.recv(self.size, socket.MSG_WAITALL)


class Transformed(InMemory):
    """Each sample is changed by a loop in Python."""

    def __getitem__(self, index):
        point, label = super().__getitem__(index)
        return distort(point), label


def distort(point):
    total = 0.0
    for number in range(20_000):
        total += number % 7
    return point + total * 1e-9
