"""x"""
from rota.core.ports import FREE
class Zero:
    name="zero"; free=True
    def transition(self, job, new, now_s): return FREE
    def failure_loss(self, job, now_s): return 0.0
    def describe(self): return {}
class Uniform:
    name="uniform"; unit=True; neighbours=False
    def rate(self, job, allocation, sharers): return 1.0
    def describe(self): return {}
