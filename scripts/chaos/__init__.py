"""An attack on CLARE that anybody can repeat: kills, damage, odd bodies, crowds and full disks, all from one seed."""
