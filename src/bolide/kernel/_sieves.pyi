from bolide.kernel.sieves import Sieve as Sieve
from bolide.kernel.sieves import sift as sift
