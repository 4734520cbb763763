from bolide.kernel.units import Units as Units
