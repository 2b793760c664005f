"""The loop of PyTorch's DataParallel tutorial as its users write it: the yardstick of `make bench`."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA_SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 100


class RandomDataset(Dataset):
    def __init__(self, size, length):
        self.len = length
        self.data = torch.randn(length, size)

    def __getitem__(self, index):
        return self.data[index]

    def __len__(self):
        return self.len


class Model(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.fc = nn.Linear(input_size, output_size)

    def forward(self, x):
        output = self.fc(x)
        print("\tIn Model: input size", x.size(), "output size", output.size())
        return output


device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
loader = DataLoader(dataset=RandomDataset(5, DATA_SIZE), batch_size=30, shuffle=True)
model = Model(5, 2)
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    model = nn.DataParallel(model)
model.to(device)

for data in loader:
    inputs = data.to(device)
    outputs = model(inputs)
    print("Outside: input size", inputs.size(), "output_size", outputs.size())
